//! Places and forms of results: `--format`, `--output`, notes, the width of tables.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use safetensors::SafeTensors;
use serde_json::Value;

use crate::support::program::{hipvit, stderr, stdout};
use crate::support::{at, samples};

/// Runs `command` on the samples with its results in `file`.
fn write(command: &str, more: &[&str], file: &Path) -> Output {
    let args = [OsStr::new(command), samples().as_os_str()].map(OsStr::to_owned);
    let to = [OsStr::new("-o"), file.as_os_str()].map(OsStr::to_owned);
    hipvit(args.into_iter().chain(more.iter().map(Into::into)).chain(to))
}

fn succeeds(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    assert_eq!(stdout(output), "");
}

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let values = bytes.chunks_exact(4);
    values
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}

/// Returns the shape and the values of an f32 NumPy file.
fn npy(file: &Path) -> (Vec<usize>, Vec<f32>) {
    let bytes = fs::read(file).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\0");
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..start]).unwrap();
    assert!(
        header.contains("'descr': '<f4', 'fortran_order': False"),
        "{header}"
    );
    let (_, shape) = header.split_once("'shape': (").unwrap();
    let (shape, _) = shape.split_once(')').unwrap();
    let shape: Vec<usize> = shape
        .split(',')
        .map(|extent| extent.trim().parse().unwrap())
        .collect();
    let values = floats(&bytes[start..]);
    assert_eq!(values.len(), shape.iter().product::<usize>());
    (shape, values)
}

/// Creates a folder with three samples; the second file is no image.
fn one_of_three_is_damaged() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(samples().join("1.png"), folder.path().join("a.png")).unwrap();
    fs::write(folder.path().join("b.png"), "no image").unwrap();
    fs::copy(samples().join("3.png"), folder.path().join("c.png")).unwrap();
    folder
}

#[test]
fn embeddings_are_the_same_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["e.jsonl", "e.csv", "e.npy", "e.safetensors"] {
        succeeds(&write("embed", &[], &path(name)));
    }
    let json = lines(&path("e.jsonl"));
    let expected: Vec<f32> = json
        .iter()
        .flat_map(|line| line["embedding"].as_array().unwrap())
        .map(|value| value.as_f64().unwrap() as f32)
        .collect();
    let width = expected.len() / 10;
    let (shape, values) = npy(&path("e.npy"));
    assert_eq!((shape, values), (vec![10, width], expected.clone()));
    let bytes = fs::read(path("e.safetensors")).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let names: Vec<String> = serde_json::from_str(&metadata.metadata().as_ref().unwrap()["images"]).unwrap();
    assert!(
        names
            .iter()
            .zip(&json)
            .all(|(name, line)| line["image"] == **name)
    );
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = tensors.tensor("embeddings").unwrap();
    assert_eq!(
        (tensor.shape(), floats(tensor.data())),
        (&[10, width][..], expected.clone())
    );
    let csv = fs::read_to_string(path("e.csv")).unwrap();
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0][..3], ["image", "e0", "e1"]);
    let values = rows[1..].iter().flat_map(|row| &row[1..]);
    assert_eq!(
        values.map(|value| value.parse().unwrap()).collect::<Vec<f32>>(),
        expected
    );

    // On standard output as in a file.
    let output = hipvit([
        OsStr::new("embed"),
        samples().as_os_str(),
        "--format".as_ref(),
        "npy".as_ref(),
    ]);
    assert_eq!(output.stdout, fs::read(path("e.npy")).unwrap());
    let output = hipvit([OsStr::new("embed"), samples().as_os_str(), "--json".as_ref()]);
    assert_eq!(output.stdout, fs::read(path("e.jsonl")).unwrap());

    succeeds(&write("embed", &["--normalize"], &path("n.npy")));
    let (_, normalized) = npy(&path("n.npy"));
    for (row, plain) in normalized.chunks(width).zip(expected.chunks(width)) {
        let norm = |row: &[f32]| row.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt();
        // Each value is rounded once.
        assert!((norm(row) - 1.0).abs() <= f64::from(f32::EPSILON));
        let scale = norm(plain);
        for (value, plain) in row.iter().zip(plain) {
            let exact = f64::from(*plain) / scale;
            assert!((f64::from(*value) - exact).abs() <= f64::from(f32::EPSILON) * exact.abs());
        }
    }
}

#[test]
fn parquet_has_a_list_for_each_image() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::{ListAccessor, RowAccessor};

    let folder = tempfile::tempdir().unwrap();
    let (table, array) = (folder.path().join("e.parquet"), folder.path().join("e.npy"));
    succeeds(&write("embed", &[], &table));
    succeeds(&write("embed", &[], &array));
    let (shape, values) = npy(&array);
    let reader = SerializedFileReader::new(fs::File::open(&table).unwrap()).unwrap();
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), shape[0]);
    for (row, expected) in rows.iter().zip(values.chunks(shape[1])) {
        assert!(row.get_string(0).unwrap().ends_with(".png"));
        let list = row.get_list(1).unwrap();
        let values: Vec<f32> = (0..list.len()).map(|i| list.get_float(i).unwrap()).collect();
        assert_eq!(values, expected);
    }
}

#[test]
fn tokens_and_layers_are_tensors_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.safetensors");
    succeeds(&write("embed", &["--tokens", "--layer", "1"], &file));
    let bytes = fs::read(&file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let shape = |name: &str| tensors.tensor(name).unwrap().shape().to_vec();
    let [images, patches, width] = shape("tokens")[..] else {
        panic!("{:?}", shape("tokens"))
    };
    assert_eq!((images, shape("embeddings")), (10, vec![10, width]));
    let prefix = shape("prefix_tokens")[1];
    assert_eq!(shape("layers.1"), [10, patches + prefix, width]);

    let dense = folder.path().join("dense.safetensors");
    succeeds(&write("embed", &["--tokens", "--layer", "1", "--dense"], &dense));
    let dense = fs::read(&dense).unwrap();
    let maps = SafeTensors::deserialize(&dense).unwrap();
    let map = maps.tensor("tokens").unwrap();
    assert_eq!(map.shape(), [10, 8, 8, width]);
    assert_eq!(map.data(), tensors.tensor("tokens").unwrap().data());
    assert_eq!(maps.tensor("layers.1").unwrap().shape(), [10, 8, 8, width]);
    let output = write("embed", &["--dense"], &folder.path().join("d.safetensors"));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--tokens"), "{}", stderr(&output));

    let output = write("embed", &["--tokens"], &folder.path().join("t.npy"));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("safetensors"), "{}", stderr(&output));
}

#[test]
fn an_image_that_fails_has_no_row_in_any_form() {
    let images = one_of_three_is_damaged();
    let folder = tempfile::tempdir().unwrap();
    for command in ["embed", "preprocess"] {
        let run = |file: &Path| {
            let args = [
                OsStr::new(command),
                images.path().as_os_str(),
                "-o".as_ref(),
                file.as_os_str(),
            ];
            let output = hipvit(args);
            assert_eq!(output.status.code(), Some(1), "{command}");
            let text = stderr(&output);
            assert!(text.contains("b.png"), "{text}");
            assert!(
                text.ends_with("note: 1 of 3 images failed and are left out\n"),
                "{text}"
            );
        };
        let file = folder.path().join("x.npy");
        run(&file);
        let (shape, array) = npy(&file);
        assert_eq!(shape[0], 2);
        assert!(array.iter().all(|value| value.is_finite()), "{command}");
        let names = fs::read_to_string(folder.path().join("x.names.txt")).unwrap();
        let names: Vec<&str> = names.lines().map(|name| &name[name.len() - 5..]).collect();
        assert_eq!(names, ["a.png", "c.png"], "{command}");
        let file = folder.path().join("x.safetensors");
        run(&file);
        let bytes = fs::read(&file).unwrap();
        let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
        let names = &metadata.metadata().as_ref().unwrap()["images"];
        assert!(
            names.contains("a.png") && names.contains("c.png") && !names.contains("b.png"),
            "{names}"
        );
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let (_, tensor) = tensors.tensors().pop().unwrap();
        assert_eq!(floats(tensor.data()), array, "{command}");
    }
    for (form, rows) in [("x.jsonl", 2), ("x.csv", 3)] {
        let file = folder.path().join(form);
        let args = [
            OsStr::new("embed"),
            images.path().as_os_str(),
            "-o".as_ref(),
            file.as_os_str(),
        ];
        assert_eq!(hipvit(args).status.code(), Some(1), "{form}");
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().count(), rows, "{form}");
        assert!(!text.contains("b.png"), "{form}");
    }
}

#[test]
fn classify_writes_csv_and_json() {
    let folder = tempfile::tempdir().unwrap();
    let (csv, json) = (folder.path().join("r.csv"), folder.path().join("r.json"));
    succeeds(&write("classify", &["--top", "2"], &csv));
    succeeds(&write("classify", &["--top", "2", "--logits"], &json));
    let text = fs::read_to_string(&csv).unwrap();
    let mut rows = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    assert_eq!(
        rows.next().unwrap(),
        ["image", "rank", "index", "label", "logit", "probability"]
    );
    let lines = lines(&json);
    assert_eq!(lines.len(), 10);
    for line in &lines {
        for (rank, top) in line["top"].as_array().unwrap().iter().enumerate() {
            let row = rows.next().unwrap();
            assert_eq!(line["image"], row[0]);
            assert_eq!(row[1], (rank + 1).to_string());
            assert_eq!(
                (&top["label"], top["index"].to_string()),
                (&row[3].into(), row[2].to_owned())
            );
            let probability: f64 = row[5].parse().unwrap();
            assert!((top["probability"].as_f64().unwrap() - probability).abs() < 1e-6);
        }
        assert_eq!(line["logits"].as_array().unwrap().len(), 10);
    }
    assert!(rows.next().is_none());
}

#[test]
fn a_file_that_fails_or_is_misnamed_leaves_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.csv");
    fs::write(&file, "old").unwrap();
    let entries = || fs::read_dir(folder.path()).unwrap().count();
    // No image gives a result.
    let args = [
        OsStr::new("classify"),
        "missing.png".as_ref(),
        "-o".as_ref(),
        file.as_os_str(),
    ];
    assert_eq!(hipvit(args).status.code(), Some(1));
    assert_eq!(
        (fs::read_to_string(&file).unwrap().as_str(), entries()),
        ("old", 1)
    );
    // The model cannot be loaded.
    let output = write("classify", &["--model", "no-such-model"], &file);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        (fs::read_to_string(&file).unwrap().as_str(), entries()),
        ("old", 1)
    );
    for (command, name, part) in [
        ("classify", "r.npy", ".csv"),
        ("classify", "json", "--format json"),
        ("preprocess", "x.png", ".safetensors, .npy"),
        ("embed", "e.txt", ".npy"),
    ] {
        let path = match name {
            "json" => name.into(),
            name => folder.path().join(name),
        };
        let output = write(command, &[], &path);
        assert_eq!(output.status.code(), Some(2), "{command} {name}");
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
    assert_eq!(entries(), 1);
    assert!(!Path::new("json").exists());
    // What replaces it is complete.
    succeeds(&write("classify", &[], &file));
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 51);
    assert_eq!(entries(), 1);
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_is_missing_is_an_error_that_names_the_file_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("missing/r.csv");
    let output = write("classify", &[], &file);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.contains(file.to_str().unwrap()) && !text.contains(" at path "),
        "{text}"
    );
}

#[test]
fn a_full_device_is_named() {
    for command in ["classify", "embed"] {
        let output = write(command, &["--format", "json"], Path::new("/dev/full"));
        assert_eq!(output.status.code(), Some(1));
        assert!(
            stderr(&output).contains("/dev/full: No space left"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn a_provider_that_cannot_be_opened_is_always_said() {
    let output = Command::new(env!("CARGO_BIN_EXE_hipvit"))
        .args(["classify", "--top", "1"])
        .env("HIPVIT_PROVIDER", "/no/such/provider.so")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = stderr(&output);
    assert!(
        text.starts_with("note: running on the CPU: ") && text.contains("/no/such/provider.so"),
        "{text}"
    );
}

#[test]
fn preprocess_takes_several_images_and_no_options_that_do_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (array, tensors) = (folder.path().join("x.npy"), folder.path().join("x.safetensors"));
    succeeds(&write("preprocess", &["--image-size", "16x24"], &array));
    succeeds(&write("preprocess", &["--image-size", "16x24"], &tensors));
    let (shape, values) = npy(&array);
    assert_eq!(shape, [10, 3, 16, 24]);
    let bytes = fs::read(&tensors).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = tensors.tensor("pixel_values").unwrap();
    assert_eq!((tensor.shape(), floats(tensor.data())), (&shape[..], values));
    for option in [
        "--device=cpu",
        "--dtype=f32",
        "--batch=2",
        "--reproducible",
        "--threads=1",
        "--hip-graphs=on",
    ] {
        let output = write("preprocess", &[option], &array);
        assert_eq!(output.status.code(), Some(2), "{option}");
    }
}

/// Returns the lines of a command at a terminal's width. `None` writes to a pipe.
fn at_width(args: &[&str], columns: Option<&str>) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hipvit"));
    command.args(args).stdin(Stdio::null()).env_remove("COLUMNS");
    if let Some(columns) = columns {
        command.env("COLUMNS", columns);
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    stdout(&output).to_owned()
}

#[test]
fn tables_fit_the_width_and_break_no_word() {
    let model = at("tests/golden/timm_vit_class_token");
    let model = model.to_str().unwrap();
    let quick = ["--device", "cpu", "--runs", "1", "--warm-up", "1", "--no-peaks"];
    let bench = |more: &[&'static str]| [&["bench"][..], &quick, more].concat();
    let validate = |more: &[&'static str]| {
        [
            &["validate", "--device", "cpu", "--untimed", "--config"][..],
            more,
        ]
        .concat()
    };
    for (args, word) in [
        (vec!["inspect", model], "timm_vit_class_token"),
        (vec!["inspect", model, "--graph"], "blocks.0.norm1"),
        (vec!["inspect", model, "--plan"], "layer_norm"),
        (
            vec!["inspect", "--model", model, "--parameters"],
            "blocks.0.norm1.weight",
        ),
        // The small size in every dtype, the awkward ones in the dtype of the longest name.
        (validate(&["micro"]), "attention"),
        (validate(&["micro,awkward", "--dtype", "bf16"]), "attention"),
        (bench(&["--breakdown", "--roofline"]), "images/s"),
        (bench(&["--ladder"]), "memory plan"),
    ] {
        let [narrow, _] = [60, 80].map(|width| {
            let text = at_width(&args, Some(&width.to_string()));
            assert!(text.contains(word), "{args:?} at {width}:\n{text}");
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{args:?} at {width}: {line}");
            }
            text
        });
        // Other programs get every column.
        let whole = at_width(&args, None);
        assert!(whole.contains(word), "{args:?}:\n{whole}");
        assert!(whole.lines().count() <= narrow.lines().count(), "{args:?}");
    }
}

#[test]
fn preprocess_has_no_json() {
    let output = hipvit([
        "preprocess",
        "--json",
        at("assets/samples/1.png").to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).is_empty());
    assert!(
        stderr(&output).contains("this command cannot write JSON. Use --format safetensors or npy"),
        "{}",
        stderr(&output)
    );
    assert!(!stdout(&hipvit(["preprocess", "--help"])).contains("--json"));
}

#[test]
fn inspect_is_a_page_and_shows_the_rest_on_request() {
    let page = at_width(&["inspect"], Some("80"));
    assert!(page.lines().count() < 64, "{page}");
    for part in [
        "family",
        "tokens",
        "GFLOP per image",
        "attention",
        "arena",
        "fuse_residuals",
    ] {
        assert!(page.contains(part), "{part}:\n{page}");
    }
    assert!(!page.contains("blocks.0."), "{page}");
    let rest = at_width(&["inspect", "--graph", "--plan", "--parameters"], Some("80"));
    for part in [
        "Graph before the passes",
        "Graph after the passes",
        "Plan: ",
        "Parameters: ",
    ] {
        assert!(rest.contains(part), "{part}:\n{rest}");
    }
    assert!(!rest.contains("Passes\n"));
    let model = at("assets/tinyvit32");
    let model = model.to_str().unwrap();
    let [by_name, by_option] =
        [vec![model], vec!["-m", model]].map(|more| at_width(&[&["inspect"], &more[..]].concat(), None));
    assert_eq!(by_name, by_option);
    assert_eq!(hipvit(["inspect", model, "-m", model]).status.code(), Some(2));
    assert_eq!(hipvit(["tune", model, "-m", model]).status.code(), Some(2));
    // Both are taken; there is nothing to tune on the CPU.
    for args in [&["tune", model][..], &["tune", "-m", model]] {
        let output = hipvit([args, &["--device", "cpu"]].concat());
        assert_eq!(output.status.code(), Some(1));
        assert!(
            stderr(&output).contains("no kernels to tune"),
            "{}",
            stderr(&output)
        );
    }
    let output = hipvit(["inspect", "--kernels"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--device hip"), "{}", stderr(&output));
}
