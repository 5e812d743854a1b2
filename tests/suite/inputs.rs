//! Images of a command: `--files-from`, directories, `--exif`.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::at;
use crate::command_line::{hipvit, stderr, stdout};
use crate::outputs::samples;

#[test]
fn paths_come_from_a_file_or_standard_input() {
    let (one, two) = (samples().join("1.png"), samples().join("2.png"));
    let classify = |args: &[&str], input: &[u8]| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_hipvit"))
            .args(["classify", "--json", "--top", "1"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
    };
    let images = |output: &Output| -> Vec<String> {
        let name = |line: &str| {
            serde_json::from_str::<Value>(line).unwrap()["image"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        stdout(output).lines().map(name).collect()
    };
    let [one, two] = [&one, &two].map(|path| path.to_str().unwrap());
    for list in [format!("{one}\n{two}\n"), format!("{one}\r\n\r\n{two}")] {
        assert_eq!(
            images(&classify(&["--files-from", "-"], list.as_bytes())),
            [one, two]
        );
    }
    let folder = tempfile::tempdir().unwrap();
    // Names that would be a pattern or two lines.
    let odd = folder.path().join("[a]\n*.png");
    fs::copy(one, &odd).unwrap();
    let odd = odd.to_str().unwrap();
    let list = folder.path().join("list");
    fs::write(&list, format!("{odd}\0{two}\0")).unwrap();
    let output = classify(&[one, "--files-from", list.to_str().unwrap(), "-0"], b"");
    assert_eq!(images(&output), [one, odd, two], "{}", stderr(&output));
    // A directory is searched, a missing file is reported and the others go on.
    let list = format!("{}\nmissing.png\n", samples().display());
    let output = classify(&["--files-from", "-"], list.as_bytes());
    assert_eq!((output.status.code(), images(&output).len()), (Some(1), 10));
    assert!(stderr(&output).contains("missing.png"), "{}", stderr(&output));

    assert_eq!(classify(&["-", "--files-from", "-"], b"").status.code(), Some(2));
    assert_eq!(classify(&["-0"], b"").status.code(), Some(2));
    let output = classify(&["--files-from", "-"], b"\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no path"), "{}", stderr(&output));
}

#[test]
fn a_directory_says_what_it_skips_unless_quiet() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(samples().join("7.png"), folder.path().join("7.PNG")).unwrap();
    for name in ["a.HEIC", "b.heic", "c.avif", "README"] {
        fs::write(folder.path().join(name), "").unwrap();
    }
    let model = at("assets/tinyvit32");
    let classify = |more: &[&str]| {
        let args = [
            OsStr::new("classify"),
            folder.path().as_os_str(),
            "--model".as_ref(),
            model.as_os_str(),
        ];
        hipvit(args.into_iter().chain(more.iter().map(AsRef::as_ref)))
    };
    let output = classify(&[]);
    assert_eq!(output.status.code(), Some(0));
    let text = stderr(&output);
    assert!(
        text.starts_with("note: ")
            && text.ends_with("skipped 4 files of unsupported types: 2 .heic, 1 .avif, 1 no extension\n"),
        "{text}"
    );
    let quiet = classify(&["-q"]);
    assert_eq!((stderr(&quiet), &quiet.stdout), ("", &output.stdout));
}

/// A PNG with the orientation 6, a quarter turn to the right.
#[test]
fn exif_turns_an_image_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let png = fs::read(at("tests/golden/images/wide.png")).unwrap();
    // TIFF's header, one entry: tag 0x112, type SHORT, one value.
    let exif = b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    let mut chunk = b"eXIf".to_vec();
    chunk.extend(exif);
    let mut turned = png[..33].to_vec();
    turned.extend((exif.len() as u32).to_be_bytes());
    turned.extend(&chunk);
    turned.extend(crc32fast::hash(&chunk).to_be_bytes());
    turned.extend(&png[33..]);
    let file = folder.path().join("turned.png");
    fs::write(&file, &turned).unwrap();

    use hipvit::image::{DecodeOptions, Limits, open};
    let plain = open(at("tests/golden/images/wide.png"), Limits::default()).unwrap();
    assert_eq!(open(&file, Limits::default()).unwrap(), plain);
    let upright = open(&file, DecodeOptions::default().exif_orientation(true)).unwrap();
    assert_eq!((upright.width, upright.height), (plain.height, plain.width));
    let pixel = |image: &hipvit::image::RgbImage, x: usize, y: usize| {
        let at = 3 * (y * image.width + x);
        image.data[at..at + 3].to_vec()
    };
    for (x, y) in [(0, 0), (upright.width - 1, 0), (3, upright.height - 1), (5, 7)] {
        assert_eq!(
            pixel(&upright, x, y),
            pixel(&plain, y, plain.height - 1 - x),
            "{x}, {y}"
        );
    }
    let logits = |more: &[&str]| {
        let args = [
            OsStr::new("classify"),
            file.as_os_str(),
            "--json".as_ref(),
            "--logits".as_ref(),
        ];
        let output = hipvit(args.into_iter().chain(more.iter().map(AsRef::as_ref)));
        let line: Value = serde_json::from_str(stdout(&output)).unwrap();
        line["logits"].clone()
    };
    assert_ne!(logits(&[]), logits(&["--exif"]));
}
