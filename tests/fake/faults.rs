//! Failures are errors with place and cause. Nothing aborts or leaks, and other work continues.

use std::fs;
use std::process::Command;

use hipvit::hip::Error;
use hipvit::hip::{Blas, BlasLt, Code, Dnn, Module, Runtime};

use crate::support::at;
use crate::support::fake::{Fake, LAUNCH, Scale, Slot, bundle, bundle_of, compile, scale};

#[test]
fn no_device() {
    let fake = Fake::new("no-device");
    fake.set(Slot::Devices, 0);
    let runtime = fake.runtime();
    assert_eq!(runtime.device_count().unwrap(), 0);
    assert!(runtime.devices().unwrap().is_empty());
    let error = runtime.device(0).unwrap_err();
    assert!(matches!(error, Error::NoDevice { ordinal: 0, .. }));
    let text = error.to_string();
    assert!(
        text.contains(fake.path.to_str().unwrap()) && text.contains("/dev/kfd"),
        "{text}"
    );
    // A provider of CUDA has NVIDIA's driver.
    let folder = tempfile::tempdir().unwrap();
    let cuda = folder.path().join("libhip_on_cuda.so");
    fs::copy(Fake::compiled(), &cuda).unwrap();
    let text = Runtime::named(cuda.to_str().unwrap())
        .unwrap()
        .device(0)
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("nvidia-smi") && !text.contains("/dev/kfd"),
        "{text}"
    );
    fake.set(Slot::Devices, 2);
    let text = runtime.device(2).unwrap_err().to_string();
    assert!(
        text.starts_with("no GPU 2: ") && text.ends_with("finds 2, numbered from 0"),
        "{text}"
    );
    assert_eq!(runtime.devices().unwrap()[1].topology().unwrap().links[0].to, 0);
}

#[test]
fn a_missing_library_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = Runtime::named(folder.path().to_str().unwrap()).unwrap_err();
    assert!(matches!(error, Error::Provider { .. }));
    let text = error.to_string();
    let path = folder.path().join("libamdhip64.so.7");
    assert!(
        text.starts_with("the HIP runtime (libamdhip64.so.7) was not found; tried ")
            && text.contains(path.to_str().unwrap()),
        "{text}"
    );
    assert!(
        Runtime::named("/no/such/provider.so")
            .unwrap_err()
            .to_string()
            .contains("/no/such/provider.so")
    );

    // A provider without the other libraries still has its devices.
    let fake = Fake::new("no-libraries");
    let stream = fake.stream();
    for (error, name) in [
        (BlasLt::new(&stream).map(|_| ()), "hipBLASLt"),
        (Dnn::new(&stream).map(|_| ()), "MIOpen"),
    ] {
        let text = error.unwrap_err().to_string();
        assert!(
            text.starts_with(name) && text.contains(fake.path.to_str().unwrap()),
            "{text}"
        );
    }
    Blas::new(&stream).unwrap();
}

#[test]
fn a_missing_symbol_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("half.rs"), folder.path().join("half.so"));
    let text = "#[unsafe(no_mangle)] pub extern \"C\" fn hipInit(_: u32) -> u32 { 0 }";
    fs::write(&source, text).unwrap();
    compile(&source, &library);
    let error = Runtime::named(library.to_str().unwrap())
        .unwrap()
        .device(0)
        .unwrap_err();
    let expected = format!(
        "the HIP runtime has no function hipGetDeviceCount in {}",
        library.display()
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn code_for_another_architecture_says_which_and_what_to_do() {
    let fake = Fake::new("arch");
    {
        let device = fake.device();
        let code = Code::new(&bundle(&["gfx1100", "gfx90a"])).unwrap();
        let error = Module::load(&device, code).unwrap_err();
        assert_eq!(
            error.to_string(),
            "GPU 0 (Fake Instinct, gfx942): no code for gfx942: the code object is for gfx1100, gfx90a; \
             build it with HIPVIT_OFFLOAD_ARCHS=gfx942, or let hipRTC compile it at run time"
        );
        scale(&device);
    }
    fake.assert_clean();
}

#[test]
fn without_code_and_compiler_the_architecture_is_named() {
    let fake = Fake::new("no-code");
    // A folder with the HIP runtime and without hipRTC.
    let folder = tempfile::tempdir().unwrap();
    fs::copy(&fake.path, folder.path().join("libamdhip64.so.7")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_hipvit"))
        .args(["classify", "--device", "hip"])
        .env("HIPVIT_PROVIDER", folder.path())
        .env("FAKE_DEVICES", "1")
        .env("FAKE_TARGET", "gfx1234:xnack-")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    for part in [
        "GPU 0 (Fake Instinct, gfx1234): no code for gfx1234: ",
        " was compiled for ",
        "hipRTC",
        "build it with HIPVIT_OFFLOAD_ARCHS=gfx1234, or let hipRTC compile it at run time",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn code_for_waves_of_another_size_says_both() {
    let fake = Fake::new("waves");
    {
        let device = fake.device();
        let [narrow, wide] = ["gfx1100", "gfx90a"]
            .map(|name| fs::read(at(format!("safe/tests/data/code/{name}.elf"))).unwrap());
        // The provider looks at the bundle's names alone.
        let load = |objects: &[(&str, &[u8])]| Module::load(&device, Code::new(&bundle_of(objects)).unwrap());
        let error = load(&[("gfx90a", &wide), ("gfx942", &narrow)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "GPU 0 (Fake Instinct, gfx942): no code for gfx942: the kernel `scale` was compiled for waves of 32 lanes, \
             and the GPU's have 64; build it with HIPVIT_OFFLOAD_ARCHS=gfx942, or let hipRTC compile it at run time"
        );
        load(&[("gfx1100", &narrow), ("gfx942", &wide)]).unwrap();
    }
    fake.assert_clean();
}

#[test]
fn memory_that_runs_out_is_trimmed_then_an_error() {
    let fake = Fake::new("oom");
    {
        let device = fake.device();
        let stream = device.stream().unwrap();
        fake.set(Slot::MemoryLimit, 10 << 20);
        let keep = stream.upload(&[3u8; 1 << 20]).unwrap();
        drop(stream.zeroed::<u8>(8 << 20).unwrap());
        // Nine of ten MiB are held, eight of them unused: four more fit after a trim.
        let next = stream.allocate::<u8>(4 << 20).unwrap();
        assert_eq!(device.pool_stats().unused(), 0);
        let error = stream.allocate::<u8>(6 << 20).unwrap_err();
        assert!(
            matches!(error, Error::OutOfMemory { bytes, held, live, .. }
                if bytes == 6 << 20 && held == 5 << 20 && live == 5 << 20),
            "{error}"
        );
        assert!(error.to_string().contains("take a smaller batch"), "{error}");
        assert_eq!(keep.read().unwrap(), [3; 1 << 20]);
        drop(next);
        stream.allocate::<u8>(6 << 20).unwrap();
        assert!(stream.allocate::<u64>(usize::MAX / 2).is_err());
    }
    fake.assert_clean();
}

/// Every allocation of a small piece of work fails once.
#[test]
fn the_nth_allocation_fails() {
    let fake = Fake::new("nth");
    let kernel_work = |limit: u64| {
        fake.set(Slot::MemoryLimit, limit);
        let stream = fake.stream();
        let kernel = scale(stream.device());
        let from = stream.upload(&[2f32; 1000])?;
        let mut to = stream.allocate::<f32>(1000)?;
        let scratch = stream.zeroed::<f32>(1000)?;
        let arguments = Scale {
            from: from.address(),
            to: to.address(),
            n: 1000,
            factor: 2.0,
        };
        kernel.launch(
            &stream,
            LAUNCH,
            &arguments,
            &[from.reading(), to.writing(), scratch.reading()],
        )?;
        to.read()
    };
    for blocks in 0..3 {
        let error = kernel_work(1 + 4096 * blocks).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        fake.assert_clean();
    }
    assert_eq!(kernel_work(0).unwrap(), [4.0; 1000]);
    fake.assert_clean();
}

#[test]
fn a_failed_launch_is_told_and_the_next_one_works() {
    let fake = Fake::new("fail-launch");
    {
        let stream = fake.stream();
        let kernel = scale(stream.device());
        let from = stream.upload(&[2f32; 10]).unwrap();
        let mut to = stream.allocate::<f32>(10).unwrap();
        let arguments = Scale {
            from: from.address(),
            to: to.address(),
            n: 10,
            factor: 2.0,
        };
        fake.set(Slot::FailLaunch, 2);
        let mut launch = || kernel.launch(&stream, LAUNCH, &arguments, &[from.reading(), to.writing()]);
        launch().unwrap();
        let error = launch().unwrap_err().to_string();
        assert!(
            error.contains("hipModuleLaunchKernel failed: hipErrorLaunchFailure (719) for `scale`"),
            "{error}"
        );
        launch().unwrap();
        assert_eq!(to.read().unwrap(), [4.0; 10]);
    }
    fake.assert_clean();
}

#[test]
fn a_failed_copy_is_told_by_its_wait() {
    let fake = Fake::new("fail-copy");
    {
        let device = fake.device();
        let stream = device.stream().unwrap();
        let mut buffer = stream.zeroed::<u8>(10).unwrap();
        fake.set(Slot::FailCopy, 1);
        let copy = buffer.upload(0, device.pinned(10).unwrap()).unwrap();
        let error = copy.wait().unwrap_err().to_string();
        assert!(
            error.contains("hipEventSynchronize failed: hipErrorLaunchFailure (719)"),
            "{error}"
        );
        buffer.write(&[1; 10]).unwrap();
        assert_eq!(buffer.read().unwrap(), [1; 10]);

        // A failed copy without a waiter is reported by the next call.
        fake.set(Slot::FailCopy, 1);
        drop(buffer.upload(0, device.pinned(10).unwrap()).unwrap());
        let error = stream.synchronize().unwrap_err().to_string();
        assert!(error.contains("hipErrorLaunchFailure"), "{error}");
        assert_eq!(buffer.read().unwrap(), [1; 10]);
    }
    fake.assert_clean();
}

#[test]
fn a_drop_parks_its_error() {
    let fake = Fake::new("parked");
    let device = fake.device();
    let stream = device.stream().unwrap();
    drop(stream.allocate::<u8>(10).unwrap());
    fake.set(Slot::FailFree, 1);
    let error = device.trim().unwrap_err().to_string();
    assert!(
        error.contains("hipFree failed: hipErrorInvalidValue (1)"),
        "{error}"
    );
    let kernel = scale(&device);
    fake.set(Slot::Devices, 0);
    drop(kernel);
    fake.set(Slot::Devices, 1);
    let error = device.synchronize().unwrap_err().to_string();
    assert!(
        error.contains("hipSetDevice failed: hipErrorInvalidDevice (101)"),
        "{error}"
    );
    device.synchronize().unwrap();
}
