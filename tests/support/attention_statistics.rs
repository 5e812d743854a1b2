//! Attention statistics of a device, compared with attention maps and with the CPU.

use hipvit::image::{Limits, open};
use hipvit::reference::model_tolerance;
use hipvit::{AttentionStatistics, DType, Device, Outputs, Session};
use hipvit_explain::Explainer;

use crate::support::at;

/// A class token and registers; pooling by attention; a bias of the scores; rotary positions.
pub(crate) const MODELS: [&str; 4] = ["timm_dinov2_reg4", "hf_siglip_vision", "timm_beit", "timm_eva02"];

/// Returns the largest error of entropies and largest probabilities on `device`, relative to the bound.
pub(crate) fn compare(name: &str, device: Device, dtype: DType) -> f64 {
    let load = |statistics| {
        let builder = Session::builder().device(device).dtype(dtype);
        let builder = builder.attention_statistics(statistics);
        builder.load(at("tests/golden").join(name)).unwrap()
    };
    let session = load(true);
    let image = open(at("assets/samples/7.png"), Limits::default()).unwrap();
    let outputs = session.run([&image, &image]).unwrap();
    let plain = load(false).run([&image]).unwrap();
    assert!(plain.attention_statistics()[0].is_empty());
    let nodes = session.graph().nodes().len();
    let bound = model_tolerance(dtype, nodes);
    same_embedding(&outputs, &plain, bound);
    let maps = Explainer::new(&session)
        .unwrap()
        .explain(&image, None)
        .unwrap()
        .attention;
    let mut worst = 0f64;
    for of_image in outputs.attention_statistics() {
        assert_eq!(of_image.len(), maps.len());
        for (layer, map) in of_image.iter().zip(&maps) {
            let (heads, queries, keys) = map.weights.dim();
            assert_eq!(layer.name, map.name);
            assert_eq!(
                (layer.entropy.dim(), layer.keys),
                ((heads, queries), keys),
                "{name}"
            );
            // An error of the scores is one of the entropy up to 2·ln(keys) times as large.
            let largest = layer.log_sum_exp.iter().fold(1f32, |m, x| m.max(x.abs()));
            let bound = bound * f64::from(largest) * (2.0 + 2.0 * (keys as f64).ln());
            for ((head, query), &entropy) in layer.entropy.indexed_iter() {
                let row: Vec<f64> = (0..keys)
                    .map(|key| f64::from(map.weights[[head, query, key]]))
                    .collect();
                let expected: f64 = row.iter().filter(|&&p| p > 0.0).map(|p| -p * p.ln()).sum();
                let most = row.iter().copied().fold(0.0, f64::max);
                let errors = [
                    f64::from(entropy) - expected,
                    f64::from(layer.max_probability[[head, query]]) - most,
                ];
                for error in errors {
                    assert!(
                        error.abs() <= bound,
                        "{name} in {dtype}, {}: {error:e} of {bound:e}",
                        layer.name
                    );
                    worst = worst.max(error.abs() / bound);
                }
            }
        }
    }
    worst
}

fn same_embedding(outputs: &Outputs, plain: &Outputs, bound: f64) {
    let (got, expected) = (outputs.embeddings().row(1), plain.embeddings().row(0));
    let largest = expected.iter().fold(0f64, |m, x| m.max(f64::from(x.abs())));
    for (got, expected) in got.iter().zip(expected) {
        let error = (f64::from(*got) - f64::from(*expected)).abs();
        assert!(error <= bound * largest, "{error:e} of {:e}", bound * largest);
    }
}

/// Returns `ln Σ e^s`, which attention maps do not contain, computed in both ways.
fn log_sum_exp(name: &str, device: Device, dtype: DType) -> (Vec<f32>, f64) {
    let session = Session::builder()
        .device(device)
        .dtype(dtype)
        .attention_statistics(true);
    let session = session.load(at("tests/golden").join(name)).unwrap();
    let image = open(at("assets/samples/7.png"), Limits::default()).unwrap();
    let outputs = session.run([&image]).unwrap();
    let layers: Vec<AttentionStatistics> = outputs.image(0).attention_statistics();
    let values = layers.iter().flat_map(|layer| layer.log_sum_exp.iter().copied());
    (
        values.collect(),
        model_tolerance(dtype, session.graph().nodes().len()),
    )
}

pub(crate) fn check_device(device: Device, dtype: DType) {
    for name in MODELS {
        let worst = compare(name, device, dtype);
        let (got, bound) = log_sum_exp(name, device, dtype);
        let (expected, _) = log_sum_exp(name, Device::Cpu, DType::F32);
        let largest = expected.iter().fold(1f64, |m, x| m.max(f64::from(x.abs())));
        for (got, expected) in got.iter().zip(&expected) {
            let error = (f64::from(*got) - f64::from(*expected)).abs();
            assert!(
                error <= 2.0 * bound * largest,
                "{name} in {dtype}: {got} is not {expected}"
            );
        }
        assert_eq!(got.len(), expected.len());
        println!("PASS {dtype:<4} {name:<34} attention statistics: {worst:.2e} of the bound");
    }
}
