//! Attention with patterns on a GPU.

use hipvit::DType;
use hipvit::attention::{GpuAttention, Pattern, masks};
use hipvit::exec::{ExecutorOptions, Placement};
use hipvit::ops::{AttentionOperands, PatternAttention};

use crate::support::gpu::{device, dtypes, gpu};
use crate::support::patterns::{check, graph, relative_bias};

/// Replayed runs read the integers of their run too.
#[test]
fn captured_integers_are_inputs() {
    let Some((device, _shared)) = device() else {
        return;
    };
    for dtype in dtypes() {
        let placement = Placement::gpu(&gpu(device));
        let executor = placement
            .executor(&graph(), &ExecutorOptions::new(dtype))
            .unwrap();
        check(&executor, dtype);
    }
}

/// The gradient of a table, whose elements many scores read, has the same bits in each run.
#[test]
fn a_relative_bias_is_learned() {
    let Some((device, _shared)) = device() else {
        return;
    };
    let gpu = gpu(device);
    let errors = relative_bias::train(&gpu, 12).unwrap();
    assert!(errors[11] < 0.15 * errors[0], "{errors:?}");
    assert_eq!(relative_bias::train(&gpu, 12).unwrap(), errors);
}

#[test]
fn wrong_memory_is_an_error() {
    let Some((device, _shared)) = device() else {
        return;
    };
    let gpu = gpu(device);
    let pattern = Pattern::new().with_mask(masks::causal());
    let op = PatternAttention::new((1, 16), 0.25, AttentionOperands::PackedQkv, &pattern).unwrap();
    let compile = |shape: &[usize]| GpuAttention::new(&gpu, DType::F32, &op, &[shape]);
    let error = compile(&[2, 5, 47]).unwrap_err().to_string();
    assert!(error.contains("47"), "{error}");
    let attention = compile(&[2, 5, 48]).unwrap();
    assert_eq!(attention.result_shapes(), [[2, 5, 16]]);
    let stream = gpu.stream().unwrap();
    let buffer = |elements| stream.allocate::<f32>(elements).unwrap();
    let qkv = stream.upload(&[0.0; 2 * 5 * 48]).unwrap();
    let (short, mut out) = (buffer(2 * 5 * 48 - 1), buffer(2 * 5 * 16));
    let mut wrong = |operands: &[_]| {
        let result = attention.forward(&stream, operands, &[out.writing()]);
        result.unwrap_err().to_string()
    };
    assert!(wrong(&[]).contains("are 0, expected 1"));
    let error = wrong(&[short.reading()]);
    assert!(error.contains("outside every operand"), "{error}");
    let error = attention
        .forward(&stream, &[qkv.reading()], &[out.reading()])
        .unwrap_err();
    assert!(error.to_string().contains("out"), "{error}");
    attention
        .forward(&stream, &[qkv.reading()], &[out.writing()])
        .unwrap();
    let error = attention.backward(&stream, &[], &[]).unwrap_err().to_string();
    assert!(error.contains("log_sum_exp"), "{error}");
}
