//! Names of devices and dtypes on the command line, on a machine without a GPU.

use hipvit::Device;

use crate::support::program::{hipvit, stderr, stdout};

#[test]
fn without_a_provider_a_gpu_is_an_error_and_auto_is_the_cpu() {
    let run = |args: &[&str]| {
        std::process::Command::new(env!("CARGO_BIN_EXE_hipvit"))
            .args(args)
            .env("HIPVIT_PROVIDER", "/nowhere/libamdhip64.so")
            .output()
            .unwrap()
    };
    for device in ["hip", "hip:3"] {
        let output = run(&["classify", "--device", device, "--dtype", "f16"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert!(stderr(&output).contains("/nowhere"), "{}", stderr(&output));
    }
    // A provider that was named is never skipped silently.
    for device in [&["--device", "auto"][..], &[]] {
        let output = run(&[&["classify", "--top", "1"], device].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let note = stderr(&output);
        assert!(
            note.starts_with("note: running on the CPU: ") && note.contains("/nowhere"),
            "{note}"
        );
        assert_eq!(note.lines().count(), 1, "{note}");
    }
    let output = run(&["classify", "--device", "cpu"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
}

#[test]
fn the_cpu_computes_in_16_bits_and_devices_have_names() {
    for dtype in ["f16", "bf16"] {
        let output = hipvit(["eval", "--device", "cpu", "--dtype", dtype]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        // 357 of 360, as in f32.
        assert!(stdout(&output).contains("top-1 99.17 %"), "{}", stdout(&output));
    }
    let output = hipvit(["classify", "--device", "cpu", "--resize", "device"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("the CPU, which resizes on the host"),
        "{}",
        stderr(&output)
    );
    for (wrong, flag) in [
        ("gpu", "--resize"),
        ("hip:", "--device"),
        ("cuda", "--device"),
        ("u8", "--dtype"),
    ] {
        assert_eq!(hipvit(["embed", flag, wrong]).status.code(), Some(2), "{wrong}");
    }
    for name in ["auto", "cpu", "hip:0", "hip:12"] {
        assert_eq!(name.parse::<Device>().unwrap().to_string(), name);
    }
    assert_eq!("hip".parse::<Device>().unwrap(), Device::Hip(0));
}
