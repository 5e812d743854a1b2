//! Limits on the cost of an input: memory, work, and waiting. These small files once aborted the process,
//! made it hang or were wrongly refused. Hostile testing found those of `tests/data/robustness`.

mod webp;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use hipvit::image::{DecodeOptions, Limits, decode, open};
use hipvit::pipeline::Pipeline;
use hipvit::{ImageErrorKind, Session};

use crate::support::at;
use crate::support::program::{hipvit, stderr, stdout};

fn robustness(name: &str) -> Vec<u8> {
    fs::read(at("tests/data/robustness").join(name)).unwrap()
}

fn sample(digit: u32) -> std::path::PathBuf {
    at(format!("assets/samples/{digit}.png"))
}

/// Runs `hipvit` with this much address space in KiB.
fn with_address_space(kib: u64, args: &[&OsStr]) -> Output {
    Command::new("sh")
        .args(["-c", &format!("ulimit -v {kib} && exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_hipvit"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn reason(result: Result<hipvit::image::RgbImage, hipvit::image::Error>) -> (ImageErrorKind, String) {
    match result {
        Err(hipvit::image::Error::Image { kind, reason, .. }) => (kind, reason),
        other => panic!("{other:?}"),
    }
}

/// The headers declare 13,377 × 13,377 pixels of four 16-bit channels: 2.3 GiB with the pixels.
#[test]
fn a_small_file_that_needs_too_much_memory_is_one_error_among_good_images() {
    let (png, tiff) = (
        at("tests/data/robustness/oom_hdr_77B.png"),
        at("tests/data/robustness/oom_hdr_159B.tif"),
    );
    let (first, last) = (sample(3), sample(7));
    let threads = OsStr::new("2");
    let args = [
        OsStr::new("classify"),
        OsStr::new("-q"),
        OsStr::new("--device=cpu"),
        OsStr::new("--threads"),
        threads,
        first.as_os_str(),
        png.as_os_str(),
        tiff.as_os_str(),
        last.as_os_str(),
    ];
    let output = with_address_space(2 << 20, &args);
    let (out, err) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(1), "{err}");
    for (path, name) in [(&first, "three"), (&last, "seven")] {
        assert!(
            out.contains(&path.display().to_string()) && out.contains(name),
            "{out}"
        );
    }
    // With -q neither the count nor the model is noted.
    assert_eq!(err.lines().count(), 2, "{err}");
    for (line, path) in err.lines().zip([&png, &tiff]) {
        assert!(line.contains(&path.display().to_string()), "{line}");
        assert!(
            line.contains("GiB to decode") && line.contains("--max-decode-memory"),
            "{line}"
        );
    }
}

#[test]
fn what_an_image_needs_is_refused_by_the_limit_before_it_is_allocated() {
    let limits = Limits {
        max_memory: 1 << 30,
        ..Limits::default()
    };
    for name in ["oom_hdr_77B.png", "oom_hdr_159B.tif"] {
        let bytes = robustness(name);
        let mut result = None;
        let info = allocation_counter::measure(|| result = Some(decode(name, &bytes, limits)));
        let (kind, reason) = reason(result.unwrap());
        assert_eq!(kind, ImageErrorKind::TooLarge, "{reason}");
        assert!(reason.contains("more than the limit of 1.0 GiB"), "{reason}");
        assert!(info.bytes_max < 1 << 20, "{name}: {}", info.bytes_max);
    }
}

/// Threads wait for each other's memory instead of failing.
#[test]
fn a_budget_for_one_image_serves_many() {
    let image = at("tests/golden/images/photo.jpg");
    let one = open(&image, Limits::default()).unwrap();
    let mut limits = Limits {
        max_memory: 64 << 10,
        ..Limits::default()
    };
    // The least power of two in which one image can be decoded.
    while open(&image, limits).is_err() {
        limits.max_memory *= 2;
    }
    assert!(limits.max_memory >= one.data.len() as u64);
    let session = Session::builder().threads(4).tinyvit32().unwrap();
    let results = Pipeline::new(&session)
        .limits(limits)
        .run(vec![image.clone(); 40])
        .unwrap();
    let logits: Vec<_> = results
        .map(|item| item.unwrap().logits().unwrap().to_owned())
        .collect();
    assert_eq!(logits.len(), 40);
    assert!(logits.iter().all(|row| *row == logits[0]));
    // Half of it is an error for each of them.
    limits.max_memory /= 2;
    let results = Pipeline::new(&session)
        .limits(limits)
        .run(vec![image; 3])
        .unwrap();
    for item in results {
        assert!(item.unwrap_err().to_string().contains("Limits::max_memory"));
    }
}

#[test]
fn the_limit_on_memory_is_an_option() {
    let image = at("tests/golden/images/photo.jpg");
    let run = |limit: &str| {
        hipvit([
            OsStr::new("classify"),
            OsStr::new("--max-decode-memory"),
            OsStr::new(limit),
            image.as_os_str(),
        ])
    };
    assert_eq!(run("1G").status.code(), Some(0));
    let small = run("20K");
    assert_eq!(small.status.code(), Some(1));
    assert!(stderr(&small).contains("photo.jpg: "), "{}", stderr(&small));
    for wrong in ["", "4X", "-1", "99999999T"] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong}");
    }
}

/// The colour map of 256 entries needs more memory than so few pixels.
#[test]
fn small_palette_tiffs_equal_pillow() {
    for (side, crc) in [(4, 0x2094_f42b), (16, 0xfa0c_ee1d), (20, 0xf07f_0f09)] {
        let name = format!("tif_P_{side}.tif");
        let image = decode(&name, &robustness(&name), Limits::default()).unwrap();
        assert_eq!((image.width, image.height), (side, side));
        assert_eq!(crc32fast::hash(&image.data), crc, "{name}");
    }
}

/// A list of the chunks would take several times the size of the file.
#[test]
fn many_empty_png_chunks_take_no_memory() {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 2, 2);
    encoder.set_color(png::ColorType::Rgb);
    encoder
        .write_header()
        .unwrap()
        .write_image_data(&[7; 12])
        .unwrap();
    let end = file.windows(4).position(|kind| kind == b"IEND").unwrap() - 4;
    let empty = b"\0\0\0\0IDAT\x35\xaf\x06\x1e".repeat(200_000);
    drop(file.splice(end..end, empty));
    let mut result = None;
    let info = allocation_counter::measure(|| result = Some(decode("empty", &file, Limits::default())));
    assert_eq!(result.unwrap().unwrap().data, [7; 12]);
    assert!(info.bytes_max < 1 << 20, "{}", info.bytes_max);
}

/// Turning an image needs its pixels twice.
#[test]
fn a_turned_image_is_within_the_limit_on_memory() {
    // A PNG of 256 × 256 grey pixels behind the EXIF data of an image that is shown on its side.
    let exif = b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    let mut file = Vec::new();
    let mut info = png::Info::with_size(256, 256);
    info.exif_metadata = Some(exif.as_slice().into());
    let mut encoder = png::Encoder::with_info(&mut file, info).unwrap();
    encoder.set_color(png::ColorType::Rgb);
    let pixels: Vec<u8> = (0..256 * 256 * 3).map(|at| (at / 3 % 256) as u8).collect();
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    let taken = |max_memory: u64| {
        let limits = Limits {
            max_memory,
            ..Limits::default()
        };
        let options = DecodeOptions::from(limits).exif_orientation(true);
        let mut result = None;
        let info = allocation_counter::measure(|| result = Some(decode("turned", &file, options)));
        (result.unwrap(), info.bytes_max)
    };
    let bytes = pixels.len() as u64;
    let (image, most) = taken(bytes * 4);
    let image = image.unwrap();
    // Columns have become rows.
    assert!(image.data[..256 * 3].iter().all(|&value| value == 0));
    assert!((bytes * 2..bytes * 4).contains(&most), "{most}");
    let (refused, most) = taken(bytes * 2 - 1);
    assert_eq!(reason(refused).0, ImageErrorKind::TooLarge);
    assert!(most < bytes, "{most}");
}

/// Creates a grey TIFF, one pixel wide, with a strip for each row.
fn strips(count: u32) -> Vec<u8> {
    let lists = 8 + count;
    let directory = lists + 8 * count;
    let mut file = b"II*\0".to_vec();
    file.extend(directory.to_le_bytes());
    file.resize(file.len() + count as usize, 200);
    (0..count).for_each(|row| file.extend((8 + row).to_le_bytes()));
    (0..count).for_each(|_| file.extend(1_u32.to_le_bytes()));
    let entries = [
        (256_u16, 1, 1),
        (257, 1, count),
        (258, 1, 8),
        (259, 1, 1),
        (262, 1, 1),
        (273, count, lists),
        (277, 1, 1),
        (278, 1, 1),
        (279, count, lists + 4 * count),
    ];
    file.extend((entries.len() as u16).to_le_bytes());
    for (tag, count, value) in entries {
        file.extend(tag.to_le_bytes());
        file.extend(4_u16.to_le_bytes());
        file.extend(u32::to_le_bytes(count));
        file.extend(u32::to_le_bytes(value));
    }
    file.extend([0; 4]);
    file
}

#[test]
fn strips_count_as_work() {
    let few = decode("few", &strips(1000), Limits::default()).unwrap();
    assert_eq!((few.width, few.height), (1, 1000));
    assert!(few.data.iter().all(|&value| value == 200));
    let many = strips(200_000);
    let (kind, text) = reason(decode("many", &many, Limits::default()));
    assert_eq!(kind, ImageErrorKind::TooLarge);
    assert!(
        text.contains("200000 strips") && text.contains("--max-pixels"),
        "{text}"
    );
    let raised = Limits {
        max_pixels: 200_000 * 1024,
        ..Limits::default()
    };
    assert_eq!(decode("many", &many, raised).unwrap().height, 200_000);
}

#[test]
fn a_model_that_takes_too_much_work_is_refused() {
    let model = at("tests/golden/hf_dinov2");
    let load = |size: usize| Session::builder().image_size([size; 2]).load(&model);
    load(256).unwrap();
    // 512 × 512 patches, each attending to all others.
    let error = load(4096).unwrap_err().to_string();
    for part in [
        "config.json",
        "4096×4096",
        "--max-flops",
        "SessionBuilder::max_flops",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let run = |limit: &str| {
        let image = sample(3);
        let args = ["classify", "--device=cpu", "--max-flops", limit, "-m"];
        hipvit(
            args.iter()
                .map(OsStr::new)
                .chain([model.as_os_str(), image.as_os_str()]),
        )
    };
    assert_eq!(run("1e9").status.code(), Some(0));
    let refused = run("1e3");
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("--max-flops"), "{}", stderr(&refused));
    for wrong in ["0", "nan", "-1", "x"] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong}");
    }
}

/// Opening a FIFO would wait for a writer, and reading /dev/zero would never end.
#[test]
fn what_is_not_a_regular_file_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fifo(&path("fifo.png"));
    symlink("/dev/zero", path("zero.png")).unwrap();
    symlink(".", path("folder.png")).unwrap();
    symlink(sample(7), path("link.png")).unwrap();
    let images = [
        path("fifo.png"),
        path("zero.png"),
        "/dev/zero".into(),
        path("link.png"),
    ];
    let output = hipvit(
        [OsStr::new("classify"), OsStr::new("-q")]
            .into_iter()
            .chain(images.iter().map(|p| p.as_os_str())),
    );
    let err = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(stdout(&output).contains("seven"), "{}", stdout(&output));
    let kinds = ["a FIFO", "a device", "a device"];
    assert_eq!(err.lines().count(), kinds.len(), "{err}");
    for ((line, kind), image) in err.lines().zip(kinds).zip(&images) {
        let expected = format!("{}: is {kind}, not a regular file", image.display());
        assert!(line.contains(&expected), "{line}");
    }
    let folder = open(path("folder.png"), Limits::default())
        .unwrap_err()
        .to_string();
    assert!(folder.contains("is a directory, not a regular file"), "{folder}");
}

#[test]
fn a_model_of_devices_and_fifos_is_an_error() {
    let golden = at("tests/golden/hf_dinov2");
    let files = ["config.json", "preprocessor_config.json", "model.safetensors"];
    for replaced in files {
        for device in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            for file in files.into_iter().filter(|&file| file != replaced) {
                fs::copy(golden.join(file), dir.path().join(file)).unwrap();
            }
            let path = dir.path().join(replaced);
            let kind = if device {
                symlink("/dev/zero", &path).map(|()| "a device").unwrap()
            } else {
                fifo(&path);
                "a FIFO"
            };
            let error = Session::load(dir.path()).unwrap_err().to_string();
            let expected = format!("{}: is {kind}, not a regular file", path.display());
            assert_eq!(error, expected);
        }
    }
}

#[test]
fn a_library_that_is_a_fifo_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("libamdhip64.so.7");
    fifo(&path);
    for provider in [path.as_path(), dir.path()] {
        let output = Command::new(env!("CARGO_BIN_EXE_hipvit"))
            .args(["classify", "--device", "hip"])
            .env("HIPVIT_PROVIDER", provider)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(
            stderr(&output).contains("is a FIFO, not a regular file"),
            "{}",
            stderr(&output)
        );
    }
}
