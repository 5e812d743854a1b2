//! Text that users type and read: errors with their causes, URLs, lists in other encodings, names of dtypes
//! and of devices that are not there, environment variables.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::program::{hipvit, stderr, stdout};
use crate::support::{at, samples};

const GOLDEN: &str = "tests/golden/timm_vit_class_token";

/// Runs `hipvit` with arguments, environment variables, and bytes on standard input.
fn run(args: &[&str], variables: &[(&str, &str)], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hipvit"))
        .args(args)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn sample(digit: usize) -> String {
    samples()
        .join(format!("{digit}.png"))
        .to_str()
        .unwrap()
        .to_owned()
}

/// Returns the images of a CSV's rows.
fn images(output: &Output) -> Vec<String> {
    let rows = stdout(output).lines().skip(1);
    rows.map(|row| row.split(',').next().unwrap().to_owned())
        .collect()
}

#[test]
fn an_error_has_its_causes_once() {
    let output = hipvit(["serve", "--token-file", "nofile"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let error = text.lines().last().unwrap_or_default();
    assert!(error.starts_with("error: "), "{text}");
    assert_eq!(error.matches("nofile: No such file").count(), 1, "{text}");
}

#[test]
fn a_main_that_returns_an_error_prints_its_message() {
    let error = hipvit::Session::builder().load("no/such/model").unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string());
    assert_eq!(
        format!("{:?}", hipvit::hip::Error::argument("dtype", "is odd")),
        "dtype: is odd"
    );
}

#[test]
fn a_file_url_is_read_and_others_are_not_fetched() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("a ü%.png");
    fs::copy(sample(7), &odd).unwrap();
    let folder = folder.path().to_str().unwrap();
    let url = format!("file://localhost{folder}/a%20%C3%BC%25.png");
    let list = format!("file://{folder}/a%20%C3%BC%25.png\nhttps://h.invalid/b.png\n");
    let csv = ["-q", "--top", "1", "--format", "csv"];
    let output = run(
        &[&["classify", &url, &format!("file:{folder}")], &csv[..]].concat(),
        &[],
        b"",
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(images(&output), [odd.to_str().unwrap(), odd.to_str().unwrap()]);
    let output = run(
        &[&["classify", "--files-from", "-"], &csv[..]].concat(),
        &[],
        list.as_bytes(),
    );
    assert_eq!(
        (output.status.code(), images(&output).len()),
        (Some(1), 1),
        "{}",
        stderr(&output)
    );
    assert_eq!(
        stderr(&output),
        "error: https://h.invalid/b.png: remote URLs are not supported. Download the file: curl -LO 'https://h.invalid/b.png', or pipe it: \
         curl -L 'https://h.invalid/b.png' | hipvit classify -\n"
    );
    for args in [
        &["explain", "-o", "unwritten", "s3://bucket/a.png"][..],
        &["trace", "--pixel", "1,1", "s3://bucket/a.png"],
    ] {
        let output = hipvit(args);
        assert!(
            stderr(&output).contains("remote URLs are not supported"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn a_list_is_read_in_its_encoding() {
    let [one, two] = [1, 2].map(sample);
    let text = format!("\u{feff}{one}\r\n{two}\r\n");
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let args = [
        "classify",
        "-q",
        "--top",
        "1",
        "--format",
        "csv",
        "--files-from",
        "-",
    ];
    for list in [text.as_bytes(), &utf16, &utf16[2..]] {
        let output = run(&args, &[], list);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(images(&output), [&*one, &*two]);
    }
    let output = run(&args, &[], format!("{one}\0{two}\0").as_bytes());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("Add -0"), "{}", stderr(&output));
}

/// `._*.png` in an archive from macOS contains a file's attributes, not its pixels.
#[test]
fn apple_double_files_of_a_directory_are_skipped() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(sample(7), folder.path().join("7.png")).unwrap();
    // A real image may have such a name.
    fs::copy(sample(8), folder.path().join("._8.png")).unwrap();
    fs::write(
        folder.path().join("._7.png"),
        b"\0\x05\x16\x07\0\x02\0\0Mac OS X        ",
    )
    .unwrap();
    let pattern = folder.path().join("*.png");
    let model = at("assets/tinyvit32");
    let model = model.to_str().unwrap();
    for path in [folder.path(), &pattern] {
        let path = path.to_str().unwrap();
        let output = hipvit(["classify", "-m", model, "--top", "1", "--format", "csv", path]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(images(&output).len(), 2, "{}", stdout(&output));
        assert_eq!(
            stderr(&output),
            format!("note: {path}: skipped 1 file of unsupported types: 1 AppleDouble (._*)\n")
        );
    }
}

#[test]
fn without_a_model_it_is_said_that_digits_are_classified() {
    let digit = sample(7);
    let golden = at(GOLDEN);
    let golden = golden.to_str().unwrap();
    for command in ["classify", "embed"] {
        let notes = |args: &[&str], variables: &[(&str, &str)]| {
            let output = run(&[&[command, &digit], args].concat(), variables, b"");
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            stderr(&output).matches("handwritten digits").count()
        };
        assert_eq!(notes(&[], &[]), 1);
        assert_eq!(notes(&["-q"], &[]), 0);
        assert_eq!(notes(&["-m", golden], &[]), 0);
        assert_eq!(notes(&[], &[("HIPVIT_MODEL", golden)]), 0);
    }
}

#[test]
fn variables_are_defaults_of_options() {
    let digit = sample(7);
    let [golden, other] = [GOLDEN, "tests/golden/timm_beit"].map(at);
    let golden = golden.to_str().unwrap();
    let inspect = |args: &[&str], variables: &[(&str, &str)]| -> Value {
        let output = run(&[&["inspect", "--json"], args].concat(), variables, b"");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_str(stdout(&output)).unwrap()
    };
    let named = |report: &Value| report["model"].as_str().unwrap().to_owned();
    let variables = [("HIPVIT_MODEL", golden), ("HIPVIT_DTYPE", "BFloat16")];
    let report = inspect(&[], &variables);
    assert_eq!(named(&report), "timm_vit_class_token");
    assert_eq!(report["cpu_weights"]["dtype"], "bf16");
    // The command line takes precedence, with either form of the model.
    let other = other.to_str().unwrap();
    for args in [&[other][..], &["-m", other], &["--dtype", "fp16", other]] {
        let report = inspect(args, &variables);
        assert_ne!(named(&report), "timm_vit_class_token", "{args:?}");
        let expected = if args.len() == 3 { "f16" } else { "bf16" };
        assert_eq!(report["cpu_weights"]["dtype"], expected, "{args:?}");
    }
    assert_eq!(
        named(&inspect(&[], &[("HIPVIT_MODEL", ""), ("HIPVIT_DTYPE", "")])),
        "tinyvit32"
    );
    // An option that excludes --device is no conflict.
    let output = run(&["advise", "--gpu", "MI300X"], &[("HIPVIT_DEVICE", "cpu")], b"");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let output = run(&["classify", &digit], &[("HIPVIT_DEVICE", "abacus")], b"");
    assert_eq!(output.status.code(), Some(2));
    for part in ["`abacus` is not one of auto, cpu, hip", "HIPVIT_DEVICE=abacus"] {
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
    // A value may be wrong only when it is used, and may begin with a dash.
    for (name, reason) in [("nosuch", "there is no such"), ("-dash", "-dash")] {
        let output = run(&["classify", &digit], &[("HIPVIT_MODEL", name)], b"");
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        for part in [reason, &format!("--model comes from HIPVIT_MODEL={name}")] {
            assert!(stderr(&output).contains(part), "{}", stderr(&output));
        }
    }
    let folder = std::env::temp_dir();
    let output = run(&["classify", &digit, "-o", folder.to_str().unwrap()], &[], b"");
    assert_eq!(output.status.code(), Some(2));
    let reason = "is a directory. Name a file in it";
    assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    // Global options may come first, and texts end with the next option.
    let output = run(
        &["-q", "--color", "never", "classify", &digit, "--json"],
        &[("HIPVIT_DTYPE", "half")],
        b"",
    );
    let line: Value = serde_json::from_str(stdout(&output).lines().next().unwrap()).unwrap();
    assert_eq!(line["dtype"], "f16", "{}", stderr(&output));
    for (command, shown) in [("classify", 3), ("validate", 1), ("devices", 0), ("quantize", 0)] {
        let output = hipvit([command, "--help"]);
        let words: Vec<&str> = stdout(&output).split_whitespace().collect();
        assert_eq!(
            words.join(" ").matches("[env: HIPVIT_").count(),
            shown,
            "{command}"
        );
    }
}

#[test]
fn dtypes_and_devices_have_the_names_of_pytorch_too() {
    let dtype = |name: &str| {
        let output = hipvit(["inspect", "--json", "--dtype", name]);
        let report: Value = serde_json::from_str(stdout(&output)).unwrap();
        report["cpu_weights"]["dtype"].as_str().unwrap().to_owned()
    };
    for (name, expected) in [
        ("float", "f32"),
        ("torch.float32", "f32"),
        ("FP16", "f16"),
        ("half", "f16"),
        ("bfloat16", "bf16"),
    ] {
        assert_eq!(dtype(name), expected, "{name}");
    }
    let output = hipvit(["classify", "--device", "mps"]);
    assert!(
        stderr(&output).contains("(gpu, rocm, cuda are other names of hip)"),
        "{}",
        stderr(&output)
    );
    // Without libraries of a GPU, the way to an NVIDIA GPU is named.
    let none = [
        ("HIPVIT_PROVIDER", ""),
        ("ROCM_PATH", "/nowhere"),
        ("HIP_PATH", "/nowhere"),
    ];
    if !Path::new("/opt/rocm").exists() {
        let output = run(&["classify", "-q", "--device", "cuda"], &none, b"");
        assert!(
            stderr(&output).contains("was not found; tried"),
            "{}",
            stderr(&output)
        );
        let output = run(&["classify", "--device", "cuda"], &none, b"");
        assert!(
            stderr(&output).contains("for an NVIDIA GPU set HIPVIT_PROVIDER=cuda"),
            "{}",
            stderr(&output)
        );
    }
}

/// Lines of tables and texts fit the terminal, unless their narrowest columns are wider.
#[test]
fn trace_fits_the_terminal() {
    let digit = sample(2);
    let trace = |args: &[&str], columns: &str| {
        let args = [&["trace", &digit, "--pixel", "12,9"], args].concat();
        let output = run(&args, &[("COLUMNS", columns)], b"");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output).to_owned()
    };
    let golden = at(GOLDEN);
    for model in [at("assets/tinyvit32"), golden] {
        for columns in [60, 80, 100] {
            let text = trace(&["--memory", "-m", model.to_str().unwrap()], &columns.to_string());
            for line in text.lines() {
                assert!(line.chars().count() <= columns, "{columns}: {line}\n{text}");
            }
        }
    }
    let text = trace(&[], "80");
    for heading in [
        "Resized",
        "The token in each block",
        "Its attention, head by head",
        "Part of the output",
    ] {
        assert!(text.contains(&format!("\n\n{heading}\n")), "{heading}:\n{text}");
    }
    assert!(!text.contains("In memory"), "{text}");
    assert!(
        trace(&["--memory"], "80").contains("\n\nIn memory: cpu, f32, batch 1\n  the pixel's red byte: ")
    );
}

#[test]
fn the_commands_of_a_help_are_not_wrapped() {
    let output = run(&["serve", "--help"], &[("COLUMNS", "78")], b"");
    let curl = "    curl --data-binary @cat.jpg -H 'Inference-Header-Content-Length: 0' \\\n      http://127.0.0.1:8000/v2/models/vit/infer\n";
    assert!(stdout(&output).contains(curl), "{}", stdout(&output));
}

#[test]
fn inspect_says_that_weights_are_in_int8() {
    let model = at("tests/golden/quantized/int8_token");
    let output = hipvit([OsStr::new("inspect"), model.as_os_str()]);
    let text = stdout(&output);
    assert!(text.starts_with("int8_token, batch 1, int8 and f32\n"), "{text}");
    assert!(text.contains("on the CPU in int8 and f32"), "{text}");
    let output = hipvit([OsStr::new("inspect"), OsStr::new("--json"), model.as_os_str()]);
    let report: Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!(report["cpu_weights"]["quantized"], serde_json::json!(["int8"]));
}

#[test]
fn advice_keeps_the_rates_of_the_device_and_of_files_apart() {
    let args = ["advise", "--gpu", "MI300X", "--batch", "64"];
    let output = run(&args, &[("COLUMNS", "200")], b"");
    let text = stdout(&output);
    let (device, files) = text
        .split_once("\nFrom JPEG files, which this host decodes\n")
        .unwrap_or((text, ""));
    assert!(
        !device.contains("--resize device") || device.contains("no gain: resize"),
        "{text}"
    );
    let changes: Vec<&str> = device
        .lines()
        .skip_while(|line| !line.starts_with("What to do next"))
        .collect();
    let last = changes
        .iter()
        .rfind(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()))
        .unwrap();
    assert!(last.contains(" GPUs "), "{text}");
    let output = hipvit([&args[..], &["--json"]].concat());
    let advice: Value = serde_json::from_str(stdout(&output)).unwrap();
    for suggestion in advice["suggestions"].as_array().unwrap() {
        let of_files = suggestion["how"] == "--resize device";
        assert_eq!(
            suggestion["basis"],
            if of_files { "files" } else { "device" },
            "{suggestion}"
        );
    }
    assert!(files.is_empty() || files.contains("--resize device"), "{text}");
}
