//! Counts of profiled launches, against what is known of the kernels beforehand.

use gcnrun::{Class, Launch, Profile};

use crate::gpu::{Arguments, Gpu, arguments, on, on_each};

const FILE: &str = "profile.hip";

fn profile(
    gpu: &Gpu,
    kernel: &str,
    grid: [u32; 3],
    block: u32,
    arguments: &Arguments,
    sample: u64,
) -> Profile {
    let launch = Launch {
        kernel,
        grid,
        block: [block, 1, 1],
        dynamic_lds: 0,
        arguments: &arguments.0,
        order: gpu.order,
        options: gpu.checks,
    };
    gpu.program.profile(&launch, sample).unwrap()
}

fn whole(gpu: &Gpu, kernel: &str, blocks: u32, block: u32, arguments: &Arguments) -> Profile {
    let profile = profile(gpu, kernel, [blocks, 1, 1], block, arguments, u64::MAX);
    assert_eq!(
        (profile.blocks, profile.sampled_blocks),
        (u64::from(blocks), u64::from(blocks))
    );
    assert_eq!(profile.classes.values().sum::<u64>(), profile.instructions);
    assert_eq!(profile.opcodes.values().sum::<u64>(), profile.instructions);
    profile
}

#[test]
fn an_addition_moves_three_times_its_elements() {
    on_each(FILE, |gpu| {
        let n = 20 * 256;
        let one = half::f16::ONE;
        let [a, b] = [(); 2].map(|()| gpu.buffer(&vec![one; n]));
        let out = gpu.unwritten::<half::f16>(n);
        let arguments = arguments().buffer(&out).buffer(&a).buffer(&b);
        let counts = whole(gpu, "add", 20, 256, &arguments);
        assert_eq!(out.read(gpu), vec![one + one; n]);
        assert_eq!(counts.loads.bytes + counts.stores.bytes, 3 * n as u64 * 2);
        // Every line once: no two blocks share one.
        assert_eq!(
            (counts.loads.lines, counts.stores.lines),
            (2 * n as u64 / 64, n as u64 / 64)
        );
        assert_eq!(counts.loads.block_lines, counts.loads.lines);
        // A wave of 64 lanes loads a line, one of 32 half a line.
        assert_eq!(counts.loads.segments_128, counts.loads.instructions);
        assert_eq!(counts.loads.segments_64, counts.loads.bytes / 64);
        assert_eq!(counts.waves, 20 * 256 / gpu.wave() as u64);
        assert_eq!(counts.stores.instructions, counts.waves);
        // Two loads that are under way together.
        assert_eq!(counts.latencies.memory, counts.waves);
    });
}

#[test]
fn strided_loads_take_a_segment_each() {
    on_each(FILE, |gpu| {
        let input = gpu.buffer(&vec![7_u32; 256 * 32]);
        let out = gpu.unwritten::<u32>(256);
        let counts = whole(
            gpu,
            "copy_strided",
            1,
            256,
            &arguments().buffer(&out).buffer(&input).with(32_u32),
        );
        assert_eq!((counts.loads.segments_64, counts.loads.lines), (256, 256));
        assert_eq!((counts.stores.segments_64, counts.stores.lines), (16, 8));
    });
}

#[test]
fn coalescing_is_the_part_of_the_lines_that_is_requested() {
    on_each(FILE, |gpu| {
        let input = gpu.buffer(&vec![7_u32; 256 * 32]);
        let out = gpu.unwritten::<u32>(256);
        let waves = 256 / gpu.wave() as u64;
        // Lines, and bytes of them that are requested: of a stride of 0 one dword by all lanes of a wave.
        for (stride, lines, distinct) in [
            (0_u32, waves, 4 * waves),
            (1, 8, 1024),
            (2, 16, 1024),
            (32, 256, 1024),
        ] {
            let arguments = arguments().buffer(&out).buffer(&input).with(stride);
            let counts = whole(gpu, "copy_strided", 1, 256, &arguments);
            assert_eq!(counts.loads.bytes, 1024);
            assert_eq!(
                (counts.loads.segments_128, counts.loads.distinct_bytes),
                (lines, distinct),
                "{} {stride}",
                gpu.arch
            );
            assert_eq!(
                (counts.stores.segments_128, counts.stores.distinct_bytes),
                (8, 1024)
            );
        }
    });
}

#[test]
fn branches_within_a_wave_leave_lanes_inactive() {
    on_each(FILE, |gpu| {
        let out = gpu.unwritten::<f32>(64);
        let (wave, waves) = (gpu.wave() as u64, 64 / gpu.wave() as u64);
        let steps = 10;
        // In a wave, every other lane takes each branch; or whole waves do, if there are two.
        for (bit, taken) in [(1_u32, 2), (wave as u32 / 2, 2), (32, 3 - waves)] {
            let arguments = arguments().buffer(&out).with(bit).with(steps as u32);
            let counts = whole(gpu, "branches", 1, 64, &arguments);
            assert_eq!(
                counts.classes[&Class::Transcendental],
                taken * steps * waves,
                "{} {bit}",
                gpu.arch
            );
            // Each lane takes one branch, whatever the others do.
            assert_eq!(counts.active_lanes[&Class::Transcendental], 64 * steps);
            assert_eq!(counts.active_lanes[&Class::VectorMemory], 64);
        }
        // No lane diverges.
        let input = gpu.buffer(&[7_u32; 64]);
        let arguments = arguments().buffer(&out).buffer(&input).with(1_u32);
        let counts = whole(gpu, "copy_strided", 1, 64, &arguments);
        let lanes: u64 = counts.active_lanes.values().sum();
        let vector = [Class::Valu, Class::VectorMemory];
        assert_eq!(
            lanes,
            vector.iter().map(|class| counts.classes[class] * wave).sum()
        );
        assert!(!counts.active_lanes.contains_key(&Class::Salu));
    });
}

#[test]
fn lanes_beyond_the_block_are_inactive() {
    on_each(FILE, |gpu| {
        let one = half::f16::ONE;
        let [a, b] = [(); 2].map(|()| gpu.buffer(&[one; 48]));
        let out = gpu.unwritten::<half::f16>(48);
        let counts = whole(gpu, "add", 1, 48, &arguments().buffer(&out).buffer(&a).buffer(&b));
        assert_eq!(counts.classes[&Class::VectorMemory], 3 * counts.waves);
        assert_eq!(counts.active_lanes[&Class::VectorMemory], 3 * 48);
    });
}

#[test]
fn a_sample_tells_shared_lines_from_own_ones() {
    on("gfx942", FILE, |gpu| {
        let blocks = 1000;
        let shared = gpu.buffer(&[1_u32; 256]);
        let own = gpu.buffer(&vec![2_u32; blocks * 256]);
        let out = gpu.unwritten::<u32>(blocks * 256);
        let arguments = arguments().buffer(&out).buffer(&shared).buffer(&own);
        let grid = [10, blocks as u32 / 10, 1];
        let counts = profile(gpu, "add_shared", grid, 256, &arguments, 96);
        // Whole rows of ten blocks.
        assert_eq!(
            (counts.blocks, counts.sampled_blocks, counts.waves),
            (1000, 90, 360)
        );
        // All threads have the block's x alone, so that the ten blocks of a row load the same.
        assert_eq!((counts.loads.common_lines, counts.loads.lines), (8, 80));
        assert_eq!(counts.loads.block_lines, 90 * 16);
        // Ninety blocks in turn in eight groups: each group has all of the shared lines.
        assert_eq!(counts.loads.common_lines_of_8, 64);
        assert!((counts.scale() - 1000.0 / 90.0).abs() < 1e-12);
        // No launches differ if every block ran.
        let counts = profile(gpu, "add_shared", grid, 256, &arguments, 1000);
        assert_eq!((counts.loads.common_lines, counts.loads.lines), (0, 88));
    });
}

#[test]
fn dependent_loads_cost_a_latency_each() {
    on_each(FILE, |gpu| {
        let next = gpu.buffer(&(0..64).map(|i| (i + 1) % 64).collect::<Vec<u32>>());
        let out = gpu.unwritten::<u32>(64);
        let of = |steps: u32| {
            let arguments = arguments().buffer(&out).buffer(&next).with(steps);
            whole(gpu, "chase", 1, 64, &arguments)
        };
        let (few, many) = (of(8), of(24));
        let waves = 64 / gpu.wave() as u64;
        assert_eq!(few.latencies.memory, 8 * waves);
        assert_eq!(many.latencies.memory, 24 * waves);
        assert_eq!(few.latencies.lds, 0);
        // The arguments.
        assert!(few.latencies.scalar >= waves);
    });
}

#[test]
fn lds_cycles_depend_on_the_stride() {
    on_each(FILE, |gpu| {
        let input = gpu.buffer(&[3_u32; 64]);
        let out = gpu.unwritten::<u32>(64);
        // 64 stores and 64 loads of a dword: two cycles each without conflicts, one for each lane with a stride of 32.
        for (stride, cycles) in [(1, 4), (2, 8), (3, 4), (32, 128)] {
            let arguments = arguments().buffer(&out).buffer(&input).with(stride);
            let counts = whole(gpu, "through_lds", 1, 64, &arguments);
            assert_eq!(counts.lds.cycles, cycles, "{} {stride}", gpu.arch);
            assert_eq!(counts.lds.conflict_cycles, cycles - 4);
            assert_eq!((counts.lds.load_bytes, counts.lds.store_bytes), (256, 256));
            let waves = 64 / gpu.wave() as u64;
            // The compiler drops the barrier of a single wave.
            let barriers = counts.classes.get(&Class::Barrier).copied().unwrap_or(0);
            assert_eq!(barriers, if waves == 1 { 0 } else { waves });
            // The store before the barrier is waited for, and then the load.
            assert_eq!(counts.latencies.lds, 2 * waves);
        }
    });
}

#[test]
fn transcendental_and_matrix_instructions_have_classes() {
    on_each(FILE, |gpu| {
        let out = gpu.unwritten::<f32>(512);
        let counts = whole(gpu, "exponentials", 2, 256, &arguments().buffer(&out));
        assert_eq!(counts.classes[&Class::Transcendental], counts.waves);
        assert_eq!(counts.opcodes["v_exp_f32"], counts.waves);
    });
    for (arch, kernel, opcode) in [
        ("gfx942", "mfma16_f16", "v_mfma_f32_16x16x16_f16"),
        ("gfx1100", "wmma_f32_f16", "v_wmma_f32_16x16x16_f16"),
    ] {
        on(arch, "matrix.hip", |gpu| {
            let [a, b] = [(); 2].map(|()| gpu.buffer(&[half::f16::ONE; 256]));
            let out = gpu.unwritten::<f32>(256);
            let arguments = arguments().buffer(&out).buffer(&a).buffer(&b);
            let counts = whole(gpu, kernel, 1, gpu.wave() as u32, &arguments);
            assert_eq!(counts.classes[&Class::Matrix], 1);
            assert_eq!(counts.opcodes[opcode], 1);
        });
    }
}
