//! Loads, stores and atomics, in each kind of memory.

use crate::gpu::{Gpu, Number, arguments, normal, on_each, random};

const FILE: &str = "memory.hip";

#[test]
fn atomics_count_every_item_once() {
    on_each(FILE, |gpu| {
        let out = gpu.buffer(&[0_i32; 8]);
        let wide = gpu.buffer(&[0_u64]);
        let items = 7 * 200_i32;
        gpu.launch("atomics", 7, 200, &arguments().buffer(&out).buffer(&wide));
        let sum = items * (items - 1) / 2;
        let got = out.read(gpu);
        let xor = (0..items).fold(0, |all, i| all ^ i);
        assert_eq!(got[..5], [sum, items - 1, 1 - items, xor, 2047], "{}", gpu.arch);
        assert!((1..=items).contains(&got[5]));
        assert_eq!(got[6..], [items, sum]);
        assert_eq!(wide.read(gpu), [(sum as u64) << 32]);
    });
}

#[test]
fn floats_are_added_atomically() {
    on_each(FILE, |gpu| {
        let sum = gpu.buffer(&[0.0_f32]);
        gpu.launch("atomic_add_f32", 3, 256, &arguments().buffer(&sum));
        assert_eq!(sum.read(gpu), [3.0 * 255.0 * 128.0]);
        gpu.launch("atomic_add_by_exchange", 3, 256, &arguments().buffer(&sum));
        assert_eq!(sum.read(gpu), [3.0 * 255.0 * 128.0 + 768.0]);
    });
}

#[test]
fn lds_is_added_to_atomically() {
    on_each(FILE, |gpu| {
        let x = random(1000, 1, |rng| rng.u8(..));
        let out = gpu.unwritten::<i32>(16);
        gpu.launch(
            "histogram",
            1,
            256,
            &arguments().buffer(&out).buffer(&gpu.buffer(&x)).with(1000_u32),
        );
        let expected: Vec<_> = (0..16)
            .map(|i| x.iter().filter(|&&x| x & 15 == i).count() as i32)
            .collect();
        assert_eq!(out.read(gpu), expected, "{}", gpu.arch);
    });
}

fn reverses<T: Number>(gpu: &Gpu, kernel: &str, values: &[T], group: usize) {
    let out = gpu.unwritten::<T>(values.len());
    gpu.launch(
        kernel,
        1,
        256,
        &arguments().buffer(&out).buffer(&gpu.buffer(values)),
    );
    let expected: Vec<_> = values.chunks(group).rev().flatten().copied().collect();
    assert_eq!(out.read(gpu), expected, "{kernel} on {}", gpu.arch);
}

#[test]
fn lds_holds_elements_of_every_size() {
    on_each(FILE, |gpu| {
        reverses(gpu, "reverse_u8", &random(256, 1, |rng| rng.u8(..)), 1);
        reverses(gpu, "reverse_u16", &random(256, 2, |rng| rng.u16(..)), 1);
        reverses(gpu, "reverse_u32", &random(256, 3, |rng| rng.u32(..)), 1);
        reverses(gpu, "reverse_u64", &random(256, 4, |rng| rng.u64(..)), 1);
        reverses(gpu, "reverse_int4", &random(1024, 5, |rng| rng.i32(..)), 4);
    });
}

#[test]
fn lds_may_be_dynamic() {
    on_each(FILE, |gpu| {
        let x = random(64, 1, |rng| normal(rng, 1.0));
        let out = gpu.unwritten::<f32>(64);
        let arguments = arguments().buffer(&out).buffer(&gpu.buffer(&x));
        gpu.try_launch_with_lds("rotate", 1, 64, &arguments, 256).unwrap();
        let expected: Vec<_> = (0..64).map(|i| x[(i * 5 + 1) & 63]).collect();
        assert_eq!(out.read(gpu), expected, "{}", gpu.arch);
    });
}

#[test]
fn lanes_have_memory_of_their_own() {
    on_each(FILE, |gpu| {
        let out = gpu.unwritten::<i32>(64);
        gpu.launch("own_array", 1, 64, &arguments().buffer(&out).with(20_i32));
        let expected: Vec<_> = (0..64)
            .map(|item| (0..20).map(|i| (i * 7 + item) % 40 * item).sum::<i32>())
            .collect();
        assert_eq!(out.read(gpu), expected, "{}", gpu.arch);
    });
}

#[test]
fn generic_pointers_point_to_each_kind_of_memory() {
    on_each(FILE, |gpu| {
        let before: Vec<i32> = (0..64).map(|i| i * 3).collect();
        for (place, expected) in [
            (0, Vec::from_iter((0..64).map(|i| (i ^ 1) * 3))),
            (1, Vec::from_iter((0..64).map(|i| (i ^ 1) * 2))),
            (2, Vec::from_iter((0..64).map(|i| i * 5))),
        ] {
            // The first reads what another wave overwrites after the barrier.
            let out = gpu.buffer(&before);
            gpu.launch("generic", 1, 64, &arguments().buffer(&out).with(place));
            assert_eq!(out.read(gpu), expected, "{place} on {}", gpu.arch);
        }
    });
}

#[test]
fn elements_narrower_and_wider_than_a_dword() {
    on_each(FILE, |gpu| {
        let (a, b) = (random(64, 1, |rng| rng.i16(..)), random(64, 2, |rng| rng.i8(..)));
        let (c, d) = (random(64, 3, |rng| rng.u16(..)), random(64, 4, |rng| rng.u8(..)));
        let out = gpu.unwritten::<i32>(64);
        let inputs = arguments()
            .buffer(&out)
            .buffer(&gpu.buffer(&a))
            .buffer(&gpu.buffer(&b));
        gpu.launch(
            "narrow_loads",
            1,
            64,
            &inputs.buffer(&gpu.buffer(&c)).buffer(&gpu.buffer(&d)),
        );
        let sum = |i: usize| i32::from(a[i]) + i32::from(b[i]) + i32::from(c[i]) + i32::from(d[i]);
        assert_eq!(
            out.read(gpu),
            (0..64).map(sum).collect::<Vec<_>>(),
            "{}",
            gpu.arch
        );

        let x = random(64, 5, |rng| rng.u32(..));
        let (halves, bytes) = (gpu.unwritten::<u16>(64), gpu.unwritten::<u8>(64));
        gpu.launch(
            "narrow_stores",
            1,
            64,
            &arguments().buffer(&halves).buffer(&bytes).buffer(&gpu.buffer(&x)),
        );
        assert_eq!(
            halves.read(gpu),
            x.iter().map(|x| (x >> 16) as u16).collect::<Vec<_>>()
        );
        assert_eq!(
            bytes.read(gpu),
            x.iter().map(|x| (x >> 8) as u8).collect::<Vec<_>>()
        );

        let x = random(256, 6, |rng| rng.i32(..));
        let out = gpu.unwritten::<i32>(256);
        gpu.launch("wide", 1, 64, &arguments().buffer(&out).buffer(&gpu.buffer(&x)));
        assert_eq!(
            out.read(gpu),
            x.iter().map(|x| x.wrapping_add(1)).collect::<Vec<_>>()
        );

        let x = random(192, 7, |rng| normal(rng, 1.0));
        let out = gpu.unwritten::<f32>(192);
        gpu.launch("three", 1, 64, &arguments().buffer(&out).buffer(&gpu.buffer(&x)));
        assert_eq!(
            out.read(gpu),
            x.iter()
                .enumerate()
                .map(|(i, x)| x * (i % 3 + 1) as f32)
                .collect::<Vec<_>>()
        );
    });
}

#[test]
fn constants_and_variables_are_where_the_object_says() {
    on_each(FILE, |gpu| {
        let out = gpu.unwritten::<i32>(64);
        gpu.launch("constants", 1, 64, &arguments().buffer(&out));
        assert_eq!(
            out.read(gpu),
            (0..64).map(|i| 1 << (i & 7)).collect::<Vec<_>>(),
            "{}",
            gpu.arch
        );

        let counter = gpu
            .program
            .variables()
            .find(|variable| variable.name == "counter")
            .unwrap();
        assert_eq!(counter.size, 4);
        let out = gpu.unwritten::<i32>(1);
        gpu.launch("variables", 1, 64, &arguments().buffer(&out));
        assert_eq!(out.read(gpu), [41]);
        gpu.memory.write(counter.address, &6_i32.to_le_bytes()).unwrap();
        gpu.launch("variables", 1, 64, &arguments().buffer(&out));
        assert_eq!(out.read(gpu), [7]);
        let mut value = [0; 4];
        gpu.memory.read(counter.address, &mut value).unwrap();
        assert_eq!(i32::from_le_bytes(value), 7);
    });
}

#[test]
fn arguments_may_be_structs() {
    on_each(FILE, |gpu| {
        let out = gpu.unwritten::<f32>(64);
        let arguments = arguments()
            .with(-3_i8)
            .with(0.5_f64)
            .with(1_i16)
            .with(2_i16)
            .with(4_i16)
            .buffer(&out)
            .with(200_u8);
        gpu.launch("by_value", 1, 64, &arguments);
        assert_eq!(out.read(gpu), [201.5; 64], "{}", gpu.arch);
        let kernel = gpu.program.kernel("by_value").unwrap();
        assert_eq!((kernel.arguments.len(), kernel.arguments_size), (2, 33));
    });
}
