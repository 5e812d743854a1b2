//! Attention with patterns on a GPU.

use hipvit::DType;
use hipvit::attention::{
    AttentionTile, CpuAttention, GpuAttention, Number, Pattern, floats, ints, masks, scores,
};
use hipvit::exec::{ExecutorOptions, Placement, append, unpack};
use hipvit::hip::{Device, Operand};
use hipvit::ops::{AttentionOperands, Op, PatternAttention};
use hipvit::reference::{Array, assert_close, tolerance};
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

/// Attention with two heads, its captured tensor, and what it is computed on.
struct Tiled {
    op: PatternAttention,
    /// Images and tokens.
    extents: [usize; 2],
    captured: Vec<usize>,
    /// True if the captured tensor has integers.
    has_documents: bool,
}

impl Tiled {
    /// A score that is no addend, and a mask of hidden, partial and whole tiles that differ among images.
    fn masked(images: usize, tokens: usize, head_dim: usize) -> Self {
        let pattern = Pattern::new()
            .with_score(scores::soft_cap(scores::score(), 2.0))
            .with_mask(masks::documents("documents") | masks::prefix(1));
        Self {
            op: Self::op(&pattern, head_dim),
            extents: [images, tokens],
            captured: vec![images, tokens],
            has_documents: true,
        }
    }

    /// A score with an addend, and a mask that is the same for all images.
    fn biased(images: usize, tokens: usize, head_dim: usize) -> Self {
        let pattern = Pattern::new()
            .with_score(scores::bias(scores::score(), "bias"))
            .with_mask(masks::window(40, 3));
        Self {
            op: Self::op(&pattern, head_dim),
            extents: [images, tokens],
            captured: vec![2, tokens, tokens],
            has_documents: false,
        }
    }

    fn op(pattern: &Pattern, head_dim: usize) -> PatternAttention {
        let scale = 3.0 / (head_dim as f32).sqrt();
        PatternAttention::new((2, head_dim), scale, AttentionOperands::PackedQkv, pattern).unwrap()
    }

    fn qkv(&self) -> Vec<usize> {
        let [images, tokens] = self.extents;
        vec![images, tokens, 6 * self.op.head_dim]
    }

    /// Computes it with a tile between bytes that must not change, and compares the result with the reference in f64.
    #[track_caller]
    fn check(&self, gpu: &Device, dtype: DType, tile: Option<AttentionTile>) {
        const GUARD: usize = 256;
        const FILL: u8 = 0xa5;
        let [images, tokens] = self.extents;
        let shapes = [self.qkv(), self.captured.clone()];
        let of_shapes = shapes.each_ref().map(Vec::as_slice);
        let attention = match tile {
            Some(tile) => GpuAttention::with_tile(gpu, dtype, &self.op, &of_shapes, tile),
            None => GpuAttention::new(gpu, dtype, &self.op, &of_shapes),
        };
        let attention = attention.unwrap();
        assert!(tile.is_none_or(|tile| attention.tile().unwrap() == tile));
        let stream = gpu.stream().unwrap();
        let noise = |index: usize, shape: &Vec<usize>| {
            let value = |i: usize| ((i + index) * 7919 % 1009) as f32 / 504.5 - 1.0;
            let mut bytes = Vec::new();
            let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
            append(&mut bytes, &values, dtype);
            bytes
        };
        let documents: Vec<i32> = (0..images * tokens)
            .map(|i| (i % tokens / (45 + i / tokens)) as i32)
            .collect();
        let qkv = noise(0, &shapes[0]);
        let (captured, values) = if self.has_documents {
            let values = documents.iter().map(|&document| document as f32).collect();
            (
                documents
                    .iter()
                    .flat_map(|document| document.to_ne_bytes())
                    .collect(),
                values,
            )
        } else {
            let bytes = noise(1, &shapes[1]);
            let values = unpack(&bytes, dtype);
            (bytes, values)
        };
        let array = |shape: &Vec<usize>, values: &[f32]| {
            let values: Vec<f64> = values.iter().map(|&value| value.into()).collect();
            Array::new(shape.clone(), values).unwrap()
        };
        let operands = [
            array(&shapes[0], &unpack(&qkv, dtype)),
            array(&shapes[1], &values),
        ];
        let expected = Op::from(self.op.clone()).eval(&operands.each_ref()).unwrap();

        let bytes = images * tokens * 2 * self.op.head_dim * dtype.size();
        let [qkv, captured] = [qkv, captured].map(|bytes| stream.upload(&bytes).unwrap());
        let mut out = stream.upload(&vec![FILL; bytes + 2 * GUARD]).unwrap();
        let result = out.writing().part(GUARD..GUARD + bytes).unwrap();
        attention
            .forward(&stream, &[qkv.reading(), captured.reading()], &[result])
            .unwrap();
        let out = out.read().unwrap();
        let guards = [&out[..GUARD], &out[GUARD + bytes..]].concat();
        assert!(guards.iter().all(|&byte| byte == FILL), "{tile:?}");
        let found = unpack(&out[GUARD..GUARD + bytes], dtype);
        let bound = 4.0 * tolerance(dtype, tokens + self.op.head_dim);
        assert_close(&found, expected[0].values(), bound);
    }
}

/// Each tile is compiled for one pattern. The extents leave tiles of queries and keys partial.
#[test]
fn every_tile_agrees_with_the_reference() {
    let Some((device, _shared)) = device() else {
        return;
    };
    let gpu = gpu(device);
    for dtype in dtypes() {
        let of_default = [Tiled::masked(2, 65, 64), Tiled::biased(1, 63, 48)];
        of_default.iter().for_each(|tiled| tiled.check(&gpu, dtype, None));
        let Tiled { op, captured, .. } = &of_default[0];
        let attention = GpuAttention::new(&gpu, dtype, op, &[&of_default[0].qkv(), captured]).unwrap();
        let tiles = attention.tiles().unwrap();
        assert!(
            tiles.len() > 1 && !tiles.contains(&attention.tile().unwrap()),
            "{tiles:?}"
        );
        for (index, tile) in tiles.into_iter().enumerate() {
            let cases = if index % 2 == 0 {
                [Tiled::masked(2, 65, 64), Tiled::masked(1, 197, 64)]
            } else {
                [Tiled::biased(2, 63, 48), Tiled::biased(1, 197, 48)]
            };
            cases
                .iter()
                .for_each(|tiled| tiled.check(&gpu, dtype, Some(tile)));
        }
        let large = Tiled::masked(1, 1, 128);
        let tile = AttentionTile {
            waves: 4,
            queries: 64,
            keys: 64,
        };
        let error = GpuAttention::with_tile(&gpu, dtype, &large.op, &[&large.qkv(), &large.captured], tile);
        let error = error.unwrap_err().to_string();
        assert!(
            error.starts_with("tile: 64×64 with 4 waves is not supported"),
            "{error}"
        );
    }
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
