//! Branches, calls, grids, barriers.

use crate::gpu::{arguments, normal, on_each, random};

const FILE: &str = "control.hip";

#[test]
fn lanes_leave_a_loop_one_by_one() {
    on_each(FILE, |gpu| {
        let n: Vec<u32> = (1..=320).collect();
        let out = gpu.unwritten::<u32>(320);
        gpu.launch(
            "collatz",
            5,
            64,
            &arguments().buffer(&out).buffer(&gpu.buffer(&n)),
        );
        let steps = |n: &u32| {
            let (mut n, mut steps) = (u64::from(*n), 0);
            while n != 1 {
                n = if n % 2 == 1 { 3 * n + 1 } else { n / 2 };
                steps += 1;
            }
            steps
        };
        assert_eq!(
            out.read(gpu),
            n.iter().map(steps).collect::<Vec<u32>>(),
            "{}",
            gpu.arch
        );
    });
}

#[test]
fn functions_are_called() {
    fn nested(x: i32, depth: u32) -> i32 {
        if depth > 0 {
            x * 3 + nested(x + 1, depth - 1)
        } else {
            x
        }
    }
    on_each(FILE, |gpu| {
        let out = gpu.unwritten::<i32>(64);
        gpu.launch("calls", 1, 64, &arguments().buffer(&out));
        assert_eq!(
            out.read(gpu),
            (0..64).map(|x| nested(x, 4)).collect::<Vec<_>>(),
            "{}",
            gpu.arch
        );
        let which = random(64, 1, |rng| rng.i32(0..2));
        gpu.launch(
            "call_pointers",
            1,
            64,
            &arguments().buffer(&out).buffer(&gpu.buffer(&which)),
        );
        let expected: Vec<_> = which
            .iter()
            .enumerate()
            .map(|(i, which)| (i as i32 + 1) * (2 + which))
            .collect();
        assert_eq!(out.read(gpu), expected, "{}", gpu.arch);
    });
}

#[test]
fn lanes_diverge() {
    on_each(FILE, |gpu| {
        let which = random(64, 1, |rng| rng.i32(0..7));
        let before = random(64, 2, |rng| rng.i32(..));
        let out = gpu.buffer(&before);
        gpu.launch(
            "choose",
            1,
            64,
            &arguments().buffer(&out).buffer(&gpu.buffer(&which)),
        );
        let expected: Vec<_> = (0..64)
            .map(|i| match which[i] {
                0 => 11,
                1 => 7,
                2 => before[i],
                3 => i.count_ones() as i32,
                4 => -9,
                _ => 99,
            })
            .collect();
        assert_eq!(out.read(gpu), expected, "{}", gpu.arch);
    });
}

#[test]
fn every_item_of_a_grid_runs_once() {
    on_each(FILE, |gpu| {
        for (grid, block) in [
            ([1, 1, 1], [1, 1, 1]),
            ([4, 3, 2], [8, 1, 1]),
            ([3, 2, 5], [5, 3, 7]),
            ([2, 1, 1], [65, 1, 1]),
            ([1, 3, 1], [1, 63, 2]),
            ([1, 1, 3], [1, 1, 50]),
            ([2, 2, 2], [16, 16, 1]),
        ] {
            let [width, height, depth]: [u32; 3] = std::array::from_fn(|axis| grid[axis] * block[axis]);
            let out = gpu.buffer(&vec![0_u32; (width * height * depth) as usize]);
            let statistics = gpu.launch("positions", grid, block, &arguments().buffer(&out));
            let expected: Vec<_> = (0..depth)
                .flat_map(|z| {
                    (0..height).flat_map(move |y| (0..width).map(move |x| 1 + x + 100 * y + 10000 * z))
                })
                .collect();
            assert_eq!(out.read(gpu), expected, "{grid:?} {block:?} on {}", gpu.arch);
            let waves =
                block.iter().product::<u32>().div_ceil(gpu.wave() as u32) * grid.iter().product::<u32>();
            assert_eq!(statistics.waves, u64::from(waves));
            assert!(statistics.instructions > statistics.waves);
        }
    });
}

#[test]
fn all_blocks_run_in_every_order() {
    on_each(FILE, |gpu| {
        let counter = gpu.buffer(&[0_u32]);
        let turn = gpu.unwritten::<u32>(33);
        gpu.launch("tickets", 33, 64, &arguments().buffer(&counter).buffer(&turn));
        let mut turns = turn.read(gpu);
        turns.sort_unstable();
        assert!(turns.into_iter().eq(0..33), "{}", gpu.arch);
    });
}

#[test]
fn barriers_keep_the_levels_of_a_tree_apart() {
    on_each(FILE, |gpu| {
        let x = random(768, 1, |rng| normal(rng, 1.0));
        let out = gpu.unwritten::<f32>(3);
        gpu.launch("tree", 3, 256, &arguments().buffer(&out).buffer(&gpu.buffer(&x)));
        for (got, x) in out.read(gpu).into_iter().zip(x.chunks(256)) {
            let mut held = x.to_vec();
            for half in [128, 64, 32, 16, 8, 4, 2, 1] {
                for i in 0..half {
                    held[i] += held[i + half];
                }
            }
            assert_eq!(got, held[0], "{}", gpu.arch);
        }
    });
}

#[test]
fn a_wave_may_wait_for_another_without_a_barrier() {
    on_each(FILE, |gpu| {
        let flag = gpu.buffer(&[0_u32]);
        let out = gpu.unwritten::<u32>(64);
        gpu.launch("waits", 1, 256, &arguments().buffer(&flag).buffer(&out));
        assert_eq!(out.read(gpu), [7; 64], "{}", gpu.arch);
    });
}

#[test]
fn the_clock_advances() {
    on_each(FILE, |gpu| {
        let out = gpu.unwritten::<u64>(64);
        gpu.launch("ticks", 1, 64, &arguments().buffer(&out));
        assert!(
            out.read(gpu).iter().all(|&ticks| ticks > 0 && ticks < 1 << 40),
            "{}",
            gpu.arch
        );
    });
}
