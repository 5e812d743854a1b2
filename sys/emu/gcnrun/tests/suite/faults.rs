//! Every kind of fault, each with a correct variant of the same kernel.

use gcnrun::{Checks, Fault, FaultKind, Kind, Order};

use crate::gpu::{Arguments, Gpu, arguments, on_each};

const FILE: &str = "faults.hip";

/// The kernel succeeds with the first arguments and faults with the second; returns that fault.
fn expect_fault(
    gpu: &Gpu,
    kernel: &str,
    blocks: u32,
    items: u32,
    right: &Arguments,
    wrong: &Arguments,
) -> Fault {
    gpu.launch(kernel, blocks, items, right);
    let fault = gpu
        .try_launch(kernel, blocks, items, wrong)
        .map(|_| ())
        .expect_err("a fault");
    let text = fault.to_string();
    assert!(text.starts_with(&format!("{kernel}: ")), "{text}");
    fault
}

fn at(fault: &Fault) -> &gcnrun::Place {
    fault.place.as_ref().expect("it happened at an instruction")
}

#[test]
fn out_of_bounds() {
    on_each(FILE, |gpu| {
        let x = gpu.buffer(&[1_i32; 500]);
        let out = gpu.unwritten::<i32>(500);
        let both = arguments().buffer(&out).buffer(&x).with(500_u32);
        gpu.launch("copy", 2, 256, &both);
        let fault = gpu.try_launch("copy_without_bound", 2, 256, &both).unwrap_err();
        assert!(
            matches!(fault.kind, FaultKind::OutOfBounds { bytes: 4, nearest: Some((begin, 2000)), .. } if begin == x.address),
            "{fault}"
        );
        let place = at(&fault);
        assert_eq!(place.block, [1, 0, 0]);
        assert!(place.instruction.contains("load"), "{fault}");
        // Work-item 244 of the block is the first out of bounds, by too little to hit another allocation.
        let wave = gpu.wave() as u32;
        assert_eq!((place.wave, place.lane), (244 / wave, Some(244 % wave)));
    });
}

/// Loads the same kernels, with other checks.
fn with_checks(gpu: &Gpu, checks: Checks) -> Gpu {
    let object = crate::gpu::compiled(FILE, gpu.arch).expect("these kernels are loaded already");
    Gpu {
        memory: gpu.memory.clone(),
        program: gcnrun::Program::load(&gpu.memory, 0, &object).unwrap(),
        checks,
        ..*gpu
    }
}

fn misaligned(fault: &Fault, address: u64) {
    assert_eq!(
        fault.kind,
        FaultKind::Misaligned {
            address,
            alignment: 4
        }
    );
}

#[test]
fn misaligned_scalar_loads_and_atomics() {
    on_each(FILE, |gpu| {
        let x = gpu.buffer(&[1_i32; 4]);
        let out = gpu.unwritten::<i32>(64);
        let load = |offset: i32| arguments().buffer(&out).buffer(&x).with(offset);
        let fault = expect_fault(gpu, "scalar_load_at", 1, 64, &load(4), &load(2));
        misaligned(&fault, x.address + 2);
        let add = |offset: i32| arguments().buffer(&x).with(offset);
        let fault = expect_fault(gpu, "atomic_at", 1, 64, &add(4), &add(6));
        misaligned(&fault, x.address + 6);
    });
}

#[test]
fn misaligned_loads_with_the_alignment_check() {
    on_each(FILE, |gpu| {
        let x = gpu.buffer(&[0x0403_0201_i32, 0x0807_0605]);
        let out = gpu.unwritten::<i32>(64);
        let load = |offset: i32| arguments().buffer(&out).buffer(&x).with(offset);
        gpu.launch("load_at", 1, 64, &load(3));
        assert_eq!(out.read(gpu), [0x0706_0504; 64]);
        let strict = Checks {
            alignment: true,
            ..gpu.checks
        };
        let gpu = &with_checks(gpu, strict);
        let fault = expect_fault(gpu, "load_at", 1, 64, &load(4), &load(2));
        misaligned(&fault, x.address + 2);
    });
}

#[test]
fn use_after_free() {
    on_each(FILE, |gpu| {
        let (x, freed) = (gpu.buffer(&[1_i32; 64]), gpu.buffer(&[1_i32; 64]));
        let out = gpu.unwritten::<i32>(64);
        gpu.memory.free(freed.address).unwrap();
        let from = |x| arguments().buffer(&out).buffer(x).with(64_u32);
        let fault = expect_fault(gpu, "copy", 1, 64, &from(&x), &from(&freed));
        assert!(
            matches!(fault.kind, FaultKind::UseAfterFree { allocation, .. } if allocation == (freed.address, 256)),
            "{fault}"
        );
    });
}

#[test]
fn another_devices_memory() {
    on_each(FILE, |gpu| {
        let address = gpu.memory.allocate(256, Kind::Device(1), 256).unwrap();
        gpu.memory.fill(address, &[1], 256).unwrap();
        let out = gpu.unwritten::<i32>(64);
        let from = arguments().buffer(&out).with(address).with(64_u32);
        let fault = gpu.try_launch("copy", 1, 64, &from).unwrap_err();
        assert!(
            matches!(fault.kind, FaultKind::NoPeerAccess { owner: 1, .. }),
            "{fault}"
        );
        gpu.memory.allow_peer(0, 1, true);
        gpu.launch("copy", 1, 64, &from);
        gpu.memory.allow_peer(0, 1, false);
    });
}

#[test]
fn lds_overrun() {
    on_each(FILE, |gpu| {
        let out = gpu.unwritten::<i32>(64);
        let from = |first: u32| arguments().buffer(&out).with(first);
        gpu.try_launch_with_lds("lds_elements", 1, 64, &from(8), 72 * 4)
            .unwrap();
        let fault = gpu
            .try_launch_with_lds("lds_elements", 1, 64, &from(9), 72 * 4)
            .unwrap_err();
        assert_eq!(
            fault.kind,
            FaultKind::LdsOverrun {
                offset: 288,
                bytes: 4,
                size: 288
            },
            "{fault}"
        );
        assert_eq!(at(&fault).lane, Some(63 % gpu.wave() as u32));
    });
}

#[test]
fn scratch_overrun() {
    on_each(FILE, |gpu| {
        let out = gpu.unwritten::<i32>(64);
        let count = |n: i32| arguments().buffer(&out).with(n);
        let fault = expect_fault(gpu, "own_elements", 1, 64, &count(2), &count(2000));
        assert!(matches!(fault.kind, FaultKind::ScratchOverrun { .. }), "{fault}");
    });
}

fn uninitialised(fault: &Fault, of: &str) {
    assert!(
        matches!(&fault.kind, FaultKind::Uninitialised { what } if what.contains(of)),
        "{fault}"
    );
}

#[test]
fn uninitialised_memory() {
    on_each(FILE, |gpu| {
        let out = gpu.unwritten::<i32>(64);
        let write = |yes: i32| arguments().buffer(&out).with(yes);
        let fault = expect_fault(gpu, "unwritten_lds", 1, 64, &write(1), &write(0));
        uninitialised(&fault, "the stored value");
        let fault = expect_fault(gpu, "unwritten_own", 1, 64, &write(1), &write(0));
        uninitialised(&fault, "the stored value");
        let (x, unwritten) = (gpu.buffer(&[7_i32; 64]), gpu.unwritten::<i32>(64));
        let from = |x| {
            arguments()
                .buffer(&gpu.unwritten::<i32>(64))
                .buffer(x)
                .with(64_u32)
        };
        let fault = expect_fault(gpu, "copy", 1, 64, &from(&x), &from(&unwritten));
        uninitialised(&fault, "the stored value");
    });
}

#[test]
fn uninitialised_registers() {
    on_each(FILE, |gpu| {
        let out = gpu.unwritten::<i32>(64);
        let arguments = arguments().buffer(&out);
        gpu.launch("written_register", 1, 64, &arguments);
        let fault = gpu
            .try_launch("unwritten_register", 1, 64, &arguments)
            .unwrap_err();
        uninitialised(&fault, "the stored value");
        assert!(at(&fault).instruction.contains("store"), "{fault}");
    });
}

#[test]
fn uninitialised_conditions_and_addresses() {
    on_each(FILE, |gpu| {
        let (x, unwritten) = (gpu.buffer(&[7_i32; 64]), gpu.unwritten::<i32>(64));
        let from = |x| arguments().buffer(&gpu.unwritten::<i32>(64)).buffer(x);
        let fault = expect_fault(gpu, "branch_on", 1, 64, &from(&x), &from(&unwritten));
        // RDNA compares and sets EXEC in one instruction.
        let what = if gpu.arch.starts_with("gfx9") {
            "the mask of active lanes"
        } else {
            "the comparison that sets EXEC"
        };
        uninitialised(&fault, what);
        let fault = expect_fault(gpu, "scalar_branch_on", 1, 64, &from(&x), &from(&unwritten));
        uninitialised(&fault, "SCC, on which a branch depends");
        let fault = expect_fault(gpu, "address_from", 1, 64, &from(&x), &from(&unwritten));
        uninitialised(&fault, "the address");
    });
}

#[test]
fn lds_races() {
    on_each(FILE, |gpu| {
        let out = gpu.unwritten::<i32>(256);
        let barrier = |there: i32| arguments().buffer(&out).with(0_u64).with(there);
        let fault = expect_fault(gpu, "hand_over", 1, 256, &barrier(1), &barrier(0));
        let FaultKind::LdsRace {
            offset,
            other: Some(other),
            other_wrote,
        } = fault.kind
        else {
            panic!("{fault}");
        };
        let place = at(&fault);
        let waves_apart = 128 / gpu.wave() as u32;
        assert_eq!(place.wave.abs_diff(other), waves_apart, "{fault}");
        assert_eq!(other_wrote, place.wave > other, "{fault}");
        assert_eq!(offset / 4 / gpu.wave() as u32, place.wave.min(other), "{fault}");
        match gpu.order {
            Order::Forward => assert!(other_wrote, "{fault}"),
            Order::Reversed => assert!(!other_wrote, "{fault}"),
            Order::Shuffled(_) => {}
        }
        let fault = expect_fault(gpu, "overwrite", 1, 256, &barrier(1), &barrier(0));
        assert!(
            matches!(fault.kind, FaultKind::LdsRace { other: Some(_), .. }),
            "{fault}"
        );
    });
}

#[test]
fn missing_barriers_show_with_other_wave_orders() {
    on_each(FILE, |gpu| {
        let barrier = |there: i32| {
            let held = gpu.unwritten::<i32>(256);
            arguments()
                .buffer(&gpu.unwritten::<i32>(256))
                .buffer(&held)
                .with(there)
        };
        // The wave that runs first reads data that the other wave writes later.
        let fault = expect_fault(gpu, "neighbour_in_global", 1, 256, &barrier(1), &barrier(0));
        uninitialised(&fault, "the stored value");
    });
}

#[test]
fn barriers_that_not_all_waves_reach() {
    on_each(FILE, |gpu| {
        let out = gpu.unwritten::<i32>(256);
        let apart = |yes: i32| arguments().buffer(&out).with(yes);
        let fault = expect_fault(gpu, "barriers_apart", 1, 256, &apart(0), &apart(1));
        assert!(
            matches!(fault.kind, FaultKind::BarrierDivergence { .. }),
            "{fault}"
        );
        // Waves that have ended count as having reached the barrier.
        gpu.launch("some_end_early", 1, 256, &apart(1));
        let got = out.read(gpu);
        assert_eq!((&got[..128], &got[128..]), (&[2; 128][..], &[1; 128][..]));
    });
}

#[test]
fn wrong_arguments() {
    on_each(FILE, |gpu| {
        let x = gpu.buffer(&[1_i32; 64]);
        let right = arguments().buffer(&x).buffer(&x).with(64_u32);
        for (bytes, fits) in [
            (20, true),
            (24, true),
            (16, false),
            (19, false),
            (28, false),
            (0, false),
        ] {
            let mut given = right.clone();
            given.0.resize(bytes, 0);
            let launched = gpu.try_launch("copy", 1, 64, &given);
            match launched {
                Ok(_) => assert!(fits, "{bytes}"),
                Err(fault) => {
                    assert_eq!(
                        fault.kind,
                        FaultKind::ArgumentSize {
                            expected: 20,
                            given: bytes
                        }
                    );
                    assert!(!fits && fault.place.is_none());
                }
            }
        }
    });
}

#[test]
fn wrong_configurations() {
    on_each(FILE, |gpu| {
        let out = gpu.unwritten::<i32>(64);
        let arguments = arguments().buffer(&out).with(0_i32);
        let refused = |kernel: &str, grid: [u32; 3], block: [u32; 3], lds: u32| {
            let fault = gpu
                .try_launch_with_lds(kernel, grid, block, &arguments, lds)
                .unwrap_err();
            assert!(
                matches!(fault.kind, FaultKind::Configuration { .. }) && fault.place.is_none(),
                "{fault}"
            );
        };
        refused("no_such_kernel", [1, 1, 1], [64, 1, 1], 0);
        refused("loop", [1, 0, 1], [64, 1, 1], 0);
        refused("loop", [1, 1, 1], [64, 1, 0], 0);
        refused("loop", [1, 1, 1], [65, 1, 1], 0);
        refused("loop", [1, 1, 1], [8, 8, 2], 0);
        refused("lds_elements", [1, 1, 1], [64, 1, 1], 65537);
        gpu.launch("loop", 1, 64, &arguments);
    });
}

#[test]
fn hangs() {
    on_each(FILE, |gpu| {
        let brief = Checks {
            budget: 10_000,
            ..gpu.checks
        };
        let gpu = with_checks(gpu, brief);
        let out = gpu.unwritten::<i32>(64);
        let forever = |yes: i32| arguments().buffer(&out).with(yes);
        let fault = expect_fault(&gpu, "loop", 1, 64, &forever(0), &forever(1));
        assert!(
            matches!(fault.kind, FaultKind::Timeout { instructions } if instructions >= 10_000),
            "{fault}"
        );
    });
}

#[test]
fn traps_and_wild_jumps() {
    on_each(FILE, |gpu| {
        let out = gpu.unwritten::<i32>(64);
        let does = |yes: i32| arguments().buffer(&out).with(yes);
        let fault = expect_fault(gpu, "trap", 1, 64, &does(0), &does(1));
        assert_eq!(fault.kind, FaultKind::Trap { number: 2 }, "{fault}");
        let fault = expect_fault(gpu, "jump", 1, 64, &does(0), &does(1));
        assert!(matches!(fault.kind, FaultKind::WildJump { .. }), "{fault}");
    });
}

#[test]
fn unknown_instructions() {
    on_each(FILE, |gpu| {
        let out = gpu.unwritten::<i32>(64);
        let does = |yes: i32| arguments().buffer(&out).with(yes);
        let fault = expect_fault(gpu, "rare", 1, 64, &does(0), &does(1));
        assert!(
            matches!(&fault.kind, FaultKind::UnknownInstruction { what } if what.contains("s_sendmsghalt")),
            "{fault}"
        );
        assert!(fault.to_string().contains("in block (0, 0, 0), wave "), "{fault}");
    });
}
