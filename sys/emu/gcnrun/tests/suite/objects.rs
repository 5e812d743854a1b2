//! Loading code objects, intact and damaged.

use gcnrun::{Kind, LoadError, Memory, Program};

use crate::gpu::{ARCHS, compiled, on_each};

#[test]
fn an_object_describes_its_kernels() {
    on_each("memory.hip", |gpu| {
        let program = &gpu.program;
        assert_eq!(program.arch(), gpu.arch);
        assert_eq!(
            program.wave_size(),
            if gpu.arch.starts_with("gfx9") { 64 } else { 32 }
        );
        let histogram = program.kernel("histogram").unwrap();
        let arguments: Vec<_> = histogram
            .arguments
            .iter()
            .map(|a| (a.offset, a.size, a.kind.as_str()))
            .collect();
        assert_eq!(
            arguments,
            [
                (0, 8, "global_buffer"),
                (8, 8, "global_buffer"),
                (16, 4, "by_value")
            ]
        );
        assert_eq!(
            (histogram.lds, histogram.max_block, histogram.arguments_size),
            (64, 256, 20)
        );
        assert!(histogram.vgprs > 0 && histogram.sgprs > 0 && histogram.spilled_vgprs == 0);
        assert!(program.kernel("own_array").unwrap().scratch >= 160);
        assert!(program.kernel("nothing").is_none());
        assert_eq!(
            program
                .kernels()
                .filter(|kernel| kernel.name.starts_with("reverse_"))
                .count(),
            5
        );
        assert!(
            program
                .variables()
                .any(|variable| variable.name == "counter_by_pointer" && variable.size == 8)
        );
    });
}

#[test]
fn a_dropped_program_frees_its_memory() {
    for arch in ARCHS {
        let Some(elf) = compiled("memory.hip", arch) else {
            return;
        };
        let memory = Memory::new();
        let program = Program::load(&memory, 3, &elf).unwrap();
        let address = program.variables().next().unwrap().address;
        assert_eq!(memory.find(address).unwrap().kind, Kind::Device(3));
        drop(program);
        assert!(!memory.find(address).unwrap().live);
    }
}

#[test]
fn other_files_are_refused_with_a_reason() {
    let memory = Memory::new();
    for bytes in [
        &b""[..],
        b"\x7fELF",
        b"__CLANG_OFFLOAD_BUNDLE__ and more",
        b"CCOB",
        &[0; 4096],
    ] {
        let error = Program::load(&memory, 0, bytes).map(|_| ()).unwrap_err();
        assert!(matches!(error, LoadError::NotACodeObject { .. }), "{error}");
    }
    let this = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    assert!(matches!(
        Program::load(&memory, 0, &this),
        Err(LoadError::NotACodeObject { .. })
    ));
}

#[test]
fn damaged_objects_are_refused_or_harmless() {
    let Some(elf) = compiled("memory.hip", "gfx942") else {
        return;
    };
    let memory = Memory::new();
    for length in (0..elf.len()).step_by(97) {
        assert!(Program::load(&memory, 0, &elf[..length]).is_err(), "{length}");
    }
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..500 {
        let mut damaged = elf.to_vec();
        for _ in 0..4 {
            let at = rng.usize(..damaged.len());
            damaged[at] = rng.u8(..);
        }
        // Most still load, since most bytes are instructions; none may panic.
        let _ = Program::load(&memory, 0, &damaged);
    }
}
