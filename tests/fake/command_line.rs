//! Commands on the fake provider: `inspect`, `classify --timing`, and warnings.

use crate::support::fake::Fake;
use crate::support::program::{stderr, stdout};
use crate::support::{at, bench};

fn run(fake: &Fake, args: &[&str]) -> std::process::Output {
    std::process::Command::new(env!("CARGO_BIN_EXE_hipvit"))
        .args(args)
        .env("HIPVIT_PROVIDER", &fake.path)
        .env("FAKE_DEVICES", "1")
        .output()
        .unwrap()
}

#[test]
fn models_with_weights_in_8_bits_run() {
    let fake = Fake::new("quantized");
    let model = |name: &str| at("tests/golden/quantized").join(name).display().to_string();
    let image = at("tests/golden/images/small.png").display().to_string();
    let classify = |name: &str, device: &str| {
        let model = model(name);
        run(
            &fake,
            &["classify", "-m", &model, "--device", device, "--json", &image],
        )
    };
    for name in ["fp8_static", "fp8_weights", "int8_weights", "int8_asymmetric"] {
        for device in ["hip:0", "cpu"] {
            let output = classify(name, device);
            assert!(output.status.success(), "{name}: {}", stderr(&output));
            let json: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
            assert!(!json.to_string().is_empty(), "{name}");
        }
    }
}

#[test]
fn inspect_shows_where_each_parameter_lies_on_the_device() {
    let fake = Fake::new("inspect");
    let output = run(
        &fake,
        &["inspect", "--device", "hip:0", "--dtype", "f16", "--json"],
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!(json["dtype"], "f16");
    let number = |value: &serde_json::Value| {
        let text = value.as_str().unwrap().strip_prefix("0x").unwrap();
        u64::from_str_radix(text, 16).unwrap()
    };
    let region = |value: &serde_json::Value| {
        let start = number(&value["address"]);
        start..start + value["bytes"].as_u64().unwrap()
    };
    let memory = &json["device_memory"];
    assert!(memory["device"].as_str().unwrap().contains("Fake Instinct"));
    let (weights, arena) = (region(&memory["weights"]), region(&memory["arena"]));
    assert!(arena.end - arena.start >= json["memory"]["arena_bytes"].as_u64().unwrap());
    assert!(arena.end <= weights.start || weights.end <= arena.start);
    let mut places = Vec::new();
    for parameter in json["parameters"].as_array().unwrap() {
        // What no step reads any more is not uploaded.
        let Some(device) = parameter.get("device") else {
            continue;
        };
        let place = region(device);
        let elements: u64 = parameter["shape"]
            .as_array()
            .unwrap()
            .iter()
            .map(|n| n.as_u64().unwrap())
            .product();
        assert_eq!(
            (&device["dtype"], place.end - place.start),
            (&"f16".into(), 2 * elements)
        );
        assert!(
            weights.start <= place.start && place.end <= weights.end,
            "{parameter}"
        );
        places.push(place);
    }
    assert!(places.len() > 20);
    places.sort_by_key(|place| place.start);
    assert!(places.windows(2).all(|pair| pair[0].end <= pair[1].start));

    let output = run(&fake, &["inspect", "--device", "hip"]);
    let text = stdout(&output);
    assert!(
        text.contains("Memory on GPU 0 (Fake Instinct, gfx942), f32"),
        "{text}"
    );
    let output = run(
        &fake,
        &["inspect", "--device", "hip", "--parameters", "--kernels"],
    );
    let text = stdout(&output);
    assert!(
        text.contains("device address") && text.contains("selected by"),
        "{text}"
    );
}

/// Without hipBLASLt there is one candidate less, which `inspect` reports.
#[test]
fn without_hipblaslt_rocblas_is_selected() {
    let fake = Fake::new("no-hipblaslt");
    let output = run(&fake, &["inspect", "--device", "hip", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
    let note = json["kernels_note"].as_str().unwrap();
    assert!(note.contains("hipBLASLt"), "{note}");
    let linear = |kernel: &&serde_json::Value| kernel["op"].as_str().unwrap().starts_with("linear");
    let kernels = json["kernels"].as_array().unwrap();
    assert!(kernels.iter().filter(linear).count() > 4);
    for kernel in kernels.iter().filter(linear) {
        assert_eq!(kernel["kernels"][0], "rocBLAS", "{kernel}");
        assert_eq!(kernel["origin"], "rule", "{kernel}");
    }
    let output = run(&fake, &["tune", "--device", "hip"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.contains("no call has more than one candidate")
            && text.contains("hipBLASLt")
            && text.contains("MIOpen"),
        "{text}"
    );
}

#[test]
fn classify_times_every_phase_on_a_device() {
    let fake = Fake::new("classify");
    let timing = |args: &[&str]| {
        let output = run(
            &fake,
            &[
                &[
                    "classify", "--device", "hip", "--batch", "2", "--timing", "--json",
                ],
                args,
            ]
            .concat(),
        );
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let last: serde_json::Value = serde_json::from_str(stdout(&output).lines().last().unwrap()).unwrap();
        last
    };
    let line = timing(&[]);
    let phases = line["timing"]["phases_ms"].as_object().unwrap();
    for phase in [
        "decode",
        "resize",
        "stage",
        "copy-in",
        "patch",
        "QKV",
        "attention",
        "FFN",
        "other",
        "copy-out",
        "softmax",
    ] {
        assert!(phases[phase].as_f64().unwrap() > 0.0, "{phase}");
    }
    assert!(line["timing"]["wall_ms"].as_f64().unwrap() > 0.0);
    assert!(line["timing"]["most_in_flight"].as_u64().unwrap() <= 3);
    assert_eq!(line["hip_graphs"]["replayed_runs"], 0);
    let line = timing(&["--hip-graphs", "on"]);
    assert!(line["hip_graphs"]["eager_runs"].as_u64().unwrap() >= 1);
    assert_eq!(line["hip_graphs"]["fallback"], serde_json::Value::Null);
}

#[test]
fn the_command_line_says_why_no_graph_is_replayed() {
    let fake = Fake::new("classify-fallback");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_hipvit"))
        .args(["classify", "--device", "hip", "--batch", "2", "--top", "1"])
        .env("HIPVIT_PROVIDER", &fake.path)
        .env("FAKE_DEVICES", "1")
        .env("FAKE_FAIL_CAPTURE", "1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let expected = "warning: HIP graphs are not replayed; steps are launched one by one: ";
    assert!(
        stderr(&output).starts_with(expected) && stderr(&output).contains("hipStreamBeginCapture failed"),
        "{}",
        stderr(&output)
    );
    assert_eq!(stdout(&output).matches(" %  ").count(), 10);
}

/// The provider computes in f32, so no rung changes the dtype.
#[test]
fn bench_shows_what_each_rung_takes_on_the_device() {
    let fake = Fake::new("bench");
    let more = ["--device", "hip:0", "--batch", "2", "--ladder", "--json"];
    let output = run(&fake, &[&bench::QUICK[..], &more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let rows = bench::rows(&output);
    let rungs = [
        "naive",
        "fused attention",
        "graph passes",
        "epilogues",
        "memory plan",
        "HIP graphs",
        "selection",
        "overlap",
    ];
    // Sums in another order: some roundings per layer, of which there are a few dozen.
    bench::check_ladder(&rows, &rungs, 100.0 * f64::from(f32::EPSILON));
    let peak = |index: usize| rows[index]["memory"]["peak_bytes"].as_u64().unwrap();
    assert!(
        peak(1) < peak(0),
        "the scores of unfused attention take memory: {rows:?}"
    );
    assert!(peak(4) < peak(3), "reuse takes less memory: {rows:?}");
    assert!(
        peak(7) > peak(6),
        "each run in flight has memory of its own: {rows:?}"
    );
    let graphs: Vec<_> = rows
        .iter()
        .map(|row| row["options"]["graphs"].as_str().unwrap())
        .collect();
    assert_eq!(
        graphs,
        ["off", "off", "off", "off", "off", "auto", "auto", "auto"]
    );
    assert_eq!(rows[0]["device"]["kind"], "rocm");
}

#[test]
fn bench_reports_a_batch_that_does_not_fit_the_device() {
    let fake = Fake::new("bench-memory");
    let more = ["--device", "hip:0,hip:7", "--batch", "2,20000", "--json"];
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_hipvit"))
        .args([&bench::QUICK[..], &more].concat())
        .env("HIPVIT_PROVIDER", &fake.path)
        .env("FAKE_DEVICES", "1")
        .env("FAKE_MEMORY_LIMIT", "200000000")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let rows = bench::rows(&output);
    bench::check(&rows[0]);
    let error = |index: usize| rows[index]["error"].as_str().unwrap();
    assert!(error(1).contains("out of memory"), "{}", error(1));
    assert!(
        error(2).contains("GPU 7") && error(3).contains("GPU 7"),
        "{}",
        error(2)
    );
}

#[test]
fn devices_have_the_names_of_pytorch_too() {
    let fake = Fake::new("words");
    let digit = at("assets/samples/7.png");
    for name in ["hip:1", "cuda:1", "GPU:1", "rocm:1"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_hipvit"))
            .args([
                "classify",
                "-q",
                "--json",
                "--device",
                name,
                digit.to_str().unwrap(),
            ])
            .env("HIPVIT_PROVIDER", &fake.path)
            .env("FAKE_DEVICES", "2")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}: {}", stderr(&output));
        let line: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
        assert_eq!(line["device"], "hip:1", "{name}");
    }
}
