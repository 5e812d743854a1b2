//! Attention with patterns on a GPU.

use hipvit::DType;
use hipvit::attention::{CpuAttention, GpuAttention, Number, Pattern, floats, ints, masks, scores};
use hipvit::exec::{ExecutorOptions, Placement};
use hipvit::hip::Operand;
use hipvit::ops::{AttentionOperands, PatternAttention};
use hipvit::reference::{assert_close, tolerance};
use hipvit::tensor::Input;

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

/// Other shapes and scalars have the same code, and give what the CPU computes.
#[test]
fn compiled_attention_is_adapted() {
    let Some((device, _shared)) = device() else {
        return;
    };
    let gpu = gpu(device);
    let score = scores::soft_cap(scores::bias(scores::score(), "bias"), floats::scalar("cap"));
    let pattern = Pattern::new()
        .with_score(score)
        .with_mask(masks::window(ints::scalar("left"), 3));
    let op = |heads: usize, cap: f32, left: i32| PatternAttention {
        heads,
        head_dim: 16,
        scale: 0.25,
        operands: AttentionOperands::PackedQkv,
        program: pattern.compile().unwrap().into(),
        scalars: vec![Number::Float(cap), Number::Int(left)],
        log_sum_exp: true,
    };
    let compiled = GpuAttention::new(&gpu, DType::F32, &op(2, 3.0, 1), &[&[1, 7, 96], &[2, 7, 7]]).unwrap();
    let stream = gpu.stream().unwrap();
    let noise = |count: usize| -> Vec<f32> {
        let value = |i: usize| (i * 7919 % 1009) as f32 / 504.5 - 1.0;
        (0..count).map(value).collect()
    };
    for (images, tokens, heads, cap, left) in [(1, 7, 2, 3.0, 1), (3, 18, 2, 3.0, 1), (2, 18, 1, 0.5, 9)] {
        let shapes: [&[usize]; 2] = [&[images, tokens, heads * 48], &[heads, tokens, tokens]];
        let op = op(heads, cap, left);
        let attention = compiled.adapted(&op, &shapes).unwrap();
        let values = shapes.map(|shape| noise(shape.iter().product()));
        let d_out = noise(images * tokens * heads * 16);

        let on_cpu = CpuAttention::new(&op, &shapes).unwrap();
        let mut inputs: Vec<Input<'_>> = values.iter().map(|values| Input::Values(values)).collect();
        let expected = on_cpu.forward(&inputs).unwrap();
        inputs.extend(expected.iter().map(|array| Input::Values(array.values())));
        inputs.push(Input::Values(&d_out));
        let gradients = on_cpu.backward(&inputs).unwrap();

        let uploaded = [&values[0], &values[1], &d_out].map(|values| stream.upload(values).unwrap());
        let [qkv, bias, d_out] = &uploaded;
        let allocate =
            |array: &hipvit::reference::Array<f32>| stream.allocate::<f32>(array.values().len()).unwrap();
        let (mut out, mut sums) = (allocate(&expected[0]), allocate(&expected[1]));
        let (mut d_qkv, mut d_bias) = (allocate(&gradients[0]), allocate(&gradients[1]));
        let mut again = allocate(&gradients[0]);
        let operands = [qkv.reading(), bias.reading()];
        attention
            .forward(&stream, &operands, &[out.writing(), sums.writing()])
            .unwrap();
        let operands = [
            qkv.reading(),
            bias.reading(),
            out.reading(),
            sums.reading(),
            d_out.reading(),
        ];
        attention
            .backward(&stream, &operands, &[d_qkv.writing(), d_bias.writing()])
            .unwrap();
        attention
            .backward(&stream, &operands, &[Some(again.writing()), None])
            .unwrap();
        assert_eq!(again.read().unwrap(), d_qkv.read().unwrap());
        let found = [&out, &sums, &d_qkv, &d_bias].map(|buffer| buffer.read().unwrap());
        for (found, expected) in found.iter().zip(expected.iter().chain(&gradients)) {
            let expected: Vec<f64> = expected.values().iter().map(|&value| f64::from(value)).collect();
            assert_close(found, &expected, 8.0 * tolerance(DType::F32, tokens + 16));
        }
    }
    let error = |op: &PatternAttention| {
        let error = compiled.adapted(op, &[&[1, 7, 96], &[2, 7, 7]]);
        error.unwrap_err().to_string()
    };
    let plain = PatternAttention::new((2, 16), 0.25, AttentionOperands::PackedQkv, &Pattern::new());
    let other = PatternAttention {
        program: plain.unwrap().program,
        scalars: Vec::new(),
        ..op(2, 3.0, 1)
    };
    assert!(!error(&other).is_empty());
    let wrong = PatternAttention {
        heads: 3,
        ..op(2, 3.0, 1)
    };
    assert!(error(&wrong).contains("96"), "{}", error(&wrong));
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
    let gradients: [Operand<'_>; 0] = [];
    let error = attention.backward(&stream, &[], &gradients);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("log_sum_exp"), "{error}");
}
