//! Marked bytes in kernels whose carriers are known beforehand.

use gcnrun::{Launch, Step, Taint};
use half::f16;

use crate::gpu::{Arguments, Gpu, arguments, on, on_each};

fn taint(gpu: &Gpu, kernel: &str, blocks: u32, block: u32, arguments: &Arguments) -> Taint {
    let launch = Launch {
        kernel,
        grid: [blocks, 1, 1],
        block: [block, 1, 1],
        dynamic_lds: 0,
        arguments: &arguments.0,
        order: gpu.order,
        options: gpu.checks,
    };
    gpu.program.taint(&launch).unwrap()
}

fn instructions(taint: &Taint, step: Step) -> u64 {
    taint.steps.get(&step).map_or(0, |carriers| carriers.instructions)
}

#[test]
fn an_element_reaches_its_sum_alone() {
    on_each("profile.hip", |gpu| {
        let [a, b] = [(); 2].map(|()| gpu.buffer(&[f16::ONE; 512]));
        let out = gpu.unwritten::<f16>(512);
        let arguments = arguments().buffer(&out).buffer(&a).buffer(&b);
        // Nothing is marked.
        assert_eq!(taint(gpu, "add", 2, 256, &arguments), Taint::default());

        gpu.memory.taint(a.address + 600, 2).unwrap();
        let found = taint(gpu, "add", 2, 256, &arguments);
        assert_eq!(found.stored, [[out.address + 600, 2]]);
        assert_eq!((found.blocks, found.waves, found.lanes), (1, 1, 1));
        for step in [Step::Vector, Step::Store] {
            assert_eq!(instructions(&found, step), 1, "{} {step:?}", gpu.arch);
        }
        // Some compilers load the word for each of its halves.
        assert!(
            (1..=2).contains(&instructions(&found, Step::Load)),
            "{}",
            gpu.arch
        );
        let (first, last) = (found.first.unwrap(), found.last.unwrap());
        assert!(first.instruction.contains("_load_"), "{first:?}");
        assert!(last.instruction.contains("_store_"), "{last:?}");
        assert!(first.pc < last.pc);
        let lane = (300 % gpu.wave()) as u32;
        for carrier in [&first, &last] {
            assert_eq!(
                (carrier.block, carrier.lanes, carrier.lane),
                ([1, 0, 0], 1, Some(lane))
            );
            assert_eq!(carrier.wave, 44 / gpu.wave() as u32);
        }
        assert_eq!(first.address, Some(a.address + 600));
        assert_eq!(last.address, Some(out.address + 600));

        // What was computed from a mark is one for the next kernel, until it is overwritten.
        let next = gpu.unwritten::<f16>(512);
        let found = taint(
            gpu,
            "add",
            2,
            256,
            &self::arguments().buffer(&next).buffer(&out).buffer(&b),
        );
        assert_eq!(found.stored, [[next.address + 600, 2]]);
        gpu.memory.fill(out.address, &[0], 1024).unwrap();
        let found = taint(
            gpu,
            "add",
            2,
            256,
            &self::arguments().buffer(&next).buffer(&out).buffer(&b),
        );
        assert_eq!(found, Taint::default());
    });
}

#[test]
fn a_dword_goes_through_lds() {
    on_each("profile.hip", |gpu| {
        let input = gpu.buffer(&[3_u32; 64]);
        let out = gpu.unwritten::<u32>(64);
        gpu.memory.taint(input.address + 4 * 37, 1).unwrap();
        let found = taint(
            gpu,
            "through_lds",
            1,
            64,
            &arguments().buffer(&out).buffer(&input).with(32_u32),
        );
        assert_eq!(found.stored.len(), 1);
        let [address, length] = found.stored[0];
        // Registers are followed by halves.
        assert_eq!((address, length), (out.address + 4 * 37, 2));
        for step in [Step::Load, Step::LdsStore, Step::LdsLoad, Step::Store] {
            assert_eq!(instructions(&found, step), 1, "{} {step:?}", gpu.arch);
        }
        let stored = found.steps[&Step::LdsStore].first.clone().unwrap();
        assert_eq!(stored.address, Some(37 * 32 * 4));
    });
}

#[test]
fn lanes_exchange_marks_with_values() {
    on_each("lanes.hip", |gpu| {
        let input = gpu.buffer(&[3_i32; 64]);
        let out = gpu.unwritten::<i32>(64);
        gpu.memory.taint(input.address + 4 * 6, 4).unwrap();
        let found = taint(
            gpu,
            "shuffle",
            1,
            64,
            &arguments().buffer(&out).buffer(&input).with(3_i32),
        );
        assert_eq!(found.stored, [[out.address + 4 * 5, 4]]);
        assert_eq!(found.lanes, 2);
    });
}

#[test]
fn an_element_of_a_matrix_reaches_a_row_of_the_product() {
    for (arch, kernel) in [("gfx942", "mfma16_f16"), ("gfx1100", "wmma_f32_f16")] {
        on(arch, "matrix.hip", |gpu| {
            let [a, b] = [(); 2].map(|()| gpu.buffer(&[f16::ONE; 256]));
            let out = gpu.unwritten::<f32>(256);
            let arguments = arguments().buffer(&out).buffer(&a).buffer(&b);
            gpu.memory.taint(a.address + 2 * (16 * 3 + 5), 2).unwrap();
            let found = taint(gpu, kernel, 1, gpu.wave() as u32, &arguments);
            assert_eq!(instructions(&found, Step::Matrix), 1);
            assert_eq!(found.steps[&Step::Matrix].lanes, 16, "{arch}");
            let bytes: u64 = found.stored.iter().map(|range| range[1]).sum();
            assert_eq!(bytes, 16 * 4, "{arch}: {:?}", found.stored);
        });
    }
}
