//! Tests of predictions and suggestions: totals match the plan, and a step's time is its roofline plus its
//! launches.

use std::sync::Arc;

use super::predict::Planner;
use super::suggest::sort;
use super::*;
use hipvit::graph::inspection::Inspection;
use hipvit::graph::plan::Plan;
use hipvit::graph::{Optimizations, optimize};
use hipvit::session::Session;
use hipvit::tensor::DType;

fn options(gpu: &str) -> Options {
    Options {
        gpu: Some(gpu.into()),
        batch: 4,
        ..Options::default()
    }
}

fn on(gpu: &str, dtype: DType, batch: usize) -> Advice {
    advise(&Options {
        batch,
        configuration: Configuration {
            dtype,
            ..Configuration::default()
        },
        ..options(gpu)
    })
    .unwrap()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * b.abs()
}

#[test]
fn sums_are_those_of_inspect() {
    let advice = on("MI300X", DType::F32, 4);
    let model = model::tinyvit32(&LoadOptions::default()).unwrap();
    let (graph, passes) = optimize(model.graph.clone(), &Session::builder().passes()).unwrap();
    let plan = Plan::new(Arc::new(graph), 4, DType::F32).unwrap();
    let inspection = Inspection::new(&model.graph, &passes, &plan);
    let (total, prediction) = (inspection.total, &advice.prediction);
    assert_eq!(prediction.flops, total.flops);
    assert_eq!(prediction.bytes, total.bytes_read + total.bytes_written);
    assert_eq!(prediction.steps.len(), inspection.steps.len());
    assert!(near(prediction.intensity, total.intensity));
    let memory = prediction.memory;
    assert_eq!(memory.activations_bytes, inspection.memory.arena_bytes as u64);
    let weights: usize = inspection.parameters.iter().map(|p| p.bytes).sum();
    assert!(memory.weights_bytes > 0 && memory.weights_bytes <= weights as u64);
    assert_eq!(
        memory.peak_bytes,
        memory.weights_bytes + memory.activations_bytes + memory.input_bytes + memory.workspace_bytes
    );
}

#[test]
fn a_step_takes_the_longer_of_compute_and_memory_and_its_launches() {
    for dtype in [DType::F32, DType::BF16] {
        let advice = on("MI300X", dtype, 64);
        let peak = if dtype == DType::F32 { 163.4e12 } else { 1307.4e12 };
        let mut sum = 0.0;
        for step in &advice.prediction.steps {
            let (compute, memory) = (step.flops as f64 / peak, step.bytes as f64 / 5.3e12);
            assert!(near(step.roofline_seconds, compute.max(memory)), "{}", step.name);
            assert!(near(step.seconds, compute.max(memory) + 1.5e-6), "{}", step.name);
            let expected = if 1.5e-6 > compute.max(memory) {
                Bound::Launch
            } else if compute > memory {
                Bound::Compute
            } else {
                Bound::Memory
            };
            assert_eq!(step.bound, expected, "{}", step.name);
            sum += step.seconds;
        }
        assert!(near(advice.prediction.seconds, sum));
        assert!(near(advice.prediction.images_per_second, 64.0 / sum));
    }
}

#[test]
fn without_launches_a_slow_memory_bounds_what_a_fast_one_does_not() {
    let model = model::tinyvit32(&LoadOptions::default()).unwrap();
    let planner = Planner::new(model.graph);
    let hardware = |bytes_per_second| Hardware {
        name: "made up".into(),
        kind: crate::peaks::Kind::Gpu,
        source: "this test".into(),
        peaks: vec![(DType::F32, 1e12)],
        bytes_per_second,
        memory_bytes: None,
        launch_seconds: [0.0; 2],
    };
    let bounds = |bytes_per_second| {
        let hardware = hardware(bytes_per_second);
        let prediction = planner.predict(&hardware, Configuration::default(), 8).unwrap();
        let compute = prediction
            .steps
            .iter()
            .filter(|step| step.bound == Bound::Compute);
        (compute.count(), prediction.seconds)
    };
    let ((slow_compute, slow), (fast_compute, fast)) = (bounds(1e6), bounds(1e18));
    assert_eq!(slow_compute, 0);
    assert!(fast_compute > 10 && slow > 1e3 * fast);
    let refused = planner.predict(
        &hardware(1e9),
        Configuration {
            dtype: DType::BF16,
            ..Configuration::default()
        },
        8,
    );
    assert!(refused.unwrap_err().to_string().contains("bf16"));
}

#[test]
fn what_is_left_out_is_advised_and_costs() {
    let naive = advise(&Options {
        configuration: Configuration {
            optimizations: Optimizations::NONE,
            hip_graphs: false,
            ..Configuration::default()
        },
        ..options("MI300X")
    })
    .unwrap();
    let full = on("MI300X", DType::F32, 4);
    assert!(naive.prediction.seconds > full.prediction.seconds);
    assert!(naive.prediction.bytes > full.prediction.bytes);
    assert!(naive.prediction.memory.activations_bytes > full.prediction.memory.activations_bytes);
    let names =
        |advice: &Advice| -> Vec<String> { advice.suggestions.iter().map(|s| s.change.clone()).collect() };
    for name in ["fusion", "fused attention", "epilogues", "HIP graphs"] {
        assert!(
            names(&naive).iter().any(|change| change == name),
            "{name}: {:?}",
            names(&naive)
        );
        assert!(!names(&full).iter().any(|change| change == name), "{name}");
    }
    let graphs = naive
        .suggestions
        .iter()
        .find(|s| s.change == "HIP graphs")
        .unwrap();
    let saved = naive
        .prediction
        .steps
        .iter()
        .map(|step| step.launches)
        .sum::<usize>() as f64
        * 3.5e-6;
    let expected = naive.prediction.seconds / (naive.prediction.seconds - saved);
    assert!(
        (graphs.gain - expected).abs() < 1e-9,
        "{} {expected}",
        graphs.gain
    );
}

#[test]
fn suggestions_come_by_gain() {
    let advice = on("MI300X", DType::F32, 4);
    let gains: Vec<f64> = advice.suggestions.iter().map(|s| s.gain).collect();
    // Another GPU comes last whatever its gain.
    let (last, others) = advice.suggestions.split_last().unwrap();
    assert_eq!(last.change, "2 GPUs");
    assert!(
        !others.is_empty() && others.is_sorted_by(|a, b| a.gain >= b.gain),
        "{gains:?}"
    );
    let mut reversed: Vec<Suggestion> = advice.suggestions.iter().rev().cloned().collect();
    sort(&mut reversed);
    let again: Vec<f64> = reversed.iter().map(|s| s.gain).collect();
    assert_eq!(again, gains);
    for suggestion in &advice.suggestions {
        let of_files = suggestion.how == "--resize device";
        assert_eq!(suggestion.basis == Basis::Files, of_files, "{suggestion:?}");
    }
    // At a batch this small, launches take most of the time. The time of resizing depends on this host.
    let of_model = advice
        .suggestions
        .iter()
        .find(|s| !s.change.starts_with("resize"));
    assert!(of_model.unwrap().change.starts_with("batch "), "{of_model:?}");
    // In bf16 and in large batches, only more GPUs help.
    let done = on("MI300X", DType::BF16, 1024);
    assert!(
        done.suggestions
            .iter()
            .all(|s| !s.change.contains("bf16") && !s.change.starts_with("batch"))
    );
    let more = done.suggestions.iter().find(|s| s.change == "2 GPUs").unwrap();
    assert!(near(more.gain, 2.0), "{more:?}");
}

#[test]
fn a_rate_needs_its_share_of_everything() {
    let advise = |rate, efficiency| {
        advise(&Options {
            rate: Some(rate),
            efficiency: Some(efficiency),
            ..options("MI300X")
        })
    };
    let advice = advise(1e6, 1.0).unwrap();
    let needed = advice.requirement.as_ref().unwrap();
    assert!(near(
        needed.flops_per_second,
        1e6 * advice.prediction.flops as f64 / 4.0
    ));
    assert!(near(
        needed.bytes_per_second,
        1e6 * advice.prediction.bytes as f64 / 4.0
    ));
    assert!(near(needed.input_bytes_per_second, 1e6 * 3072.0));
    let mi300x = needed.candidates.iter().find(|c| c.name == "MI300X").unwrap();
    let one = advice.prediction.images_per_second;
    assert!(near(mi300x.images_per_second, one));
    assert_eq!(mi300x.count, Some((1e6 / one).ceil() as u64));
    let counts: Vec<_> = needed.candidates.iter().map(|c| c.count.unwrap()).collect();
    assert!(counts.is_sorted());
    for half in advise(1e6, 0.5).unwrap().requirement.unwrap().candidates {
        assert_eq!(half.count, Some((1e6 / half.images_per_second).ceil() as u64));
    }
    for (rate, efficiency) in [(0.0, 1.0), (f64::NAN, 1.0), (1.0, 0.0), (1.0, 1.5)] {
        assert!(advise(rate, efficiency).is_err(), "{rate} {efficiency}");
    }
}

#[test]
fn an_unknown_gpu_is_refused_with_the_nearest_names() {
    let error = advise(&options("MI301X")).unwrap_err().to_string();
    assert!(error.contains("`MI301X`") && error.contains("MI300X"), "{error}");
}

#[test]
fn what_is_predicted_by_a_datasheet_is_not_measured_elsewhere() {
    let mut advice = on("MI300X", DType::F32, 1);
    assert!(
        measure(&mut advice)
            .unwrap_err()
            .to_string()
            .contains("datasheet")
    );
}

#[test]
fn every_kind_of_step_is_drawn_and_listed() {
    let advice = on("MI300X", DType::BF16, 8);
    let drawing = plot(&advice);
    let kinds = text::alike(&advice.prediction.steps);
    assert_eq!(
        kinds.iter().map(|kind| kind.count).sum::<usize>(),
        advice.prediction.steps.len()
    );
    let with_operations = kinds.iter().filter(|kind| kind.step.flops > 0).count();
    assert_eq!(drawing.matches("<circle").count(), with_operations);
    for kind in &kinds {
        assert!(drawing.contains(&kind.name()), "{}", kind.name());
    }
    let mut depth = 0;
    for event in svg::read(&drawing).unwrap() {
        match event {
            svg::parser::Event::Tag(_, svg::node::element::tag::Type::Start, _) => depth += 1,
            svg::parser::Event::Tag(_, svg::node::element::tag::Type::End, _) => depth -= 1,
            svg::parser::Event::Error(error) => panic!("{error}"),
            _ => {}
        }
    }
    assert_eq!(depth, 0);
    // All coordinates are within the picture.
    for value in drawing
        .split("cx=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
    {
        let x: f64 = value.parse().unwrap();
        assert!((0.0..1200.0).contains(&x), "{x}");
    }
}

#[test]
fn text_has_every_part_and_fits_its_width() {
    let advice = advise(&Options {
        rate: Some(1000.0),
        ..options("RX 7900 XTX")
    })
    .unwrap();
    let text = advice.text(Some(100));
    for part in [
        "on RX 7900 XTX",
        "61.4 TFLOP/s in f32",
        "no measurement",
        "memory: peak",
        "What to do next",
        "What 1000 images/s need",
        "MI355X",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let json = serde_json::to_value(&advice).unwrap();
    assert_eq!(json["schema"], SCHEMA);
    assert_eq!(json["dtype"], "f32");
    assert_eq!(json["hardware"]["kind"], "gpu");
    assert!(json["prediction"]["steps"][0]["bound"].is_string());
}
