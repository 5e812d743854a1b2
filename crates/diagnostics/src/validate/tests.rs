//! Wrong results and stray writes are found, and sampled rows equal those of the whole result.

use std::ops::Range;

use super::backend::Backend;
use super::cases::{Case, Mask, Role, Work, cases};
use super::check::{Clock, Content, MARGIN, Run};
use super::cpu::Cpu;
use super::expected::{expect, sample};
use super::operands::Operands;
use super::{Config, Options, Peaks, Status, ops, validate_on};
use hipvit::error::{Error, Result};
use hipvit::ops::{Attention, AttentionOperands, Op};
use hipvit::reference::Array;
use hipvit::tensor::{DType, Tensor};

/// Fault of an executor.
#[derive(Clone, Copy)]
enum Fault {
    None,
    /// One element is off by this fraction of the largest one.
    Off(f64),
    /// An element is not written.
    Unwritten,
    /// The byte before or after the result is written.
    Before,
    Behind,
    /// An operand changes.
    Operand,
    /// There is no result.
    Refuses,
}

/// The CPU with a fault.
struct Planted(Fault);

const CPU: Cpu = Cpu { threads: Some(1) };

impl Backend for Planted {
    fn device(&self) -> String {
        CPU.device()
    }

    fn name(&self) -> String {
        "a planted fault".into()
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::F32]
    }

    fn lacks(&self, case: &Case, dtype: DType) -> Option<&'static str> {
        CPU.lacks(case, dtype)
    }

    fn free_memory(&self) -> Result<Option<usize>> {
        Ok(None)
    }

    fn peaks(&self, _: &[DType]) -> Peaks {
        Peaks::default()
    }

    fn run(&self, case: &Case, operands: &Operands, dtype: DType, clock: Option<Clock<'_>>) -> Result<Run> {
        let mut run = CPU.run(case, operands, dtype, clock)?;
        let range = |run: &Run, wanted: fn(Content) -> bool| -> Option<Range<usize>> {
            let found = run.regions.iter().find(|(_, content)| wanted(*content));
            found.map(|(range, _)| range.clone())
        };
        let result = range(&run, |content| content == Content::Result).unwrap();
        let middle = result.start + result.len() / 8 * 4;
        let element = middle..middle + 4;
        let value = |bytes: &[u8]| f32::from_ne_bytes(bytes.try_into().unwrap());
        match self.0 {
            Fault::None => {}
            Fault::Off(part) => {
                let values = run.memory[result].chunks(4).map(value);
                // A result of zeros, such as a share of elements that underflow, is off by the fraction itself.
                let largest = values.fold(0f32, |m, v| m.max(v.abs()));
                let largest = if largest > 0.0 { largest } else { 1.0 };
                let wrong = value(&run.memory[element.clone()]) + part as f32 * largest;
                run.memory[element].copy_from_slice(&wrong.to_ne_bytes());
            }
            Fault::Unwritten => run.memory[element].fill(0xff),
            Fault::Before => run.memory[result.start - 1] = 0,
            Fault::Behind => run.memory[result.end] = 0,
            Fault::Operand => {
                let operand = range(&run, |content| content != Content::Result);
                if let Some(range) = operand {
                    run.memory[range.end - 1] ^= 1;
                }
            }
            Fault::Refuses => return Err(Error::graph(case.op_name(), "does not run")),
        }
        Ok(run)
    }
}

fn report(fault: Fault, op: &str) -> super::Report {
    let options = Options {
        configs: vec![Config::Micro],
        ops: vec![op.into()],
        ..Options::default()
    };
    validate_on(&Planted(fault), &options, &mut |_, _| {}).unwrap()
}

#[test]
fn a_wrong_element_fails_in_every_op() {
    // The CPU has no separate softmax of attention, and resampling of bytes has no rounding errors.
    for op in ops()
        .into_iter()
        .filter(|op| !["attention_softmax", "resize"].contains(op))
    {
        let honest = report(Fault::None, op);
        assert!(honest.is_clean() && honest.passed > 0, "{honest}");
        // The error is twice the widest tolerance: a number in E5M2 may become the next one.
        let wrong = report(Fault::Off(0.5), op);
        assert_eq!((wrong.failed, wrong.passed), (honest.passed, 0), "{wrong}");
        for row in wrong.rows.iter().filter(|row| row.status == Status::Failed) {
            let worst = row.worst.unwrap();
            let elements: usize = row.result.iter().product();
            assert_eq!(worst.index, elements / 2, "{}", row.form);
            assert!(worst.got != worst.want.unwrap());
            assert!(row.elementwise_error.unwrap() > row.tolerance.unwrap());
        }
        let text = wrong.to_string();
        assert!(text.contains("FAIL") && text.contains("worst at index"), "{text}");
        assert!(text.ends_with(&format!("{} skipped\n", wrong.skipped)), "{text}");
    }
}

#[test]
fn what_is_not_written_and_what_should_not_have_been_fails() {
    let reason = |fault| {
        let report = report(fault, "concat");
        assert_eq!((report.passed, report.failed), (0, 4), "{report}");
        report.rows[0].reason.clone().unwrap()
    };
    assert_eq!(reason(Fault::Unwritten), "is not finite");
    assert_eq!(
        reason(Fault::Before),
        "memory outside of the result was overwritten at byte -1"
    );
    // One row of 39 channels.
    assert_eq!(
        reason(Fault::Behind),
        "memory outside of the result was overwritten at byte 156"
    );
    assert!(reason(Fault::Refuses).contains("does not run"));
}

#[test]
fn a_wrong_byte_of_a_resized_image_fails() {
    let (right, wrong) = (report(Fault::None, "resize"), report(Fault::Unwritten, "resize"));
    assert!(right.is_clean() && right.passed > 0, "{right}");
    assert_eq!((wrong.passed, wrong.failed), (0, right.passed), "{wrong}");
    let reason = wrong.rows[0].reason.as_deref().unwrap();
    assert_eq!(reason, "differs too much from the reference");
}

#[test]
fn an_operand_that_changes_fails() {
    let report = report(Fault::Operand, "add");
    // The sum overwrites x; y is separate.
    let failed: Vec<_> = report
        .rows
        .iter()
        .filter(|row| row.status == Status::Failed)
        .collect();
    assert_eq!(failed.len(), 1, "{report}");
    assert!(failed[0].in_place);
    assert_eq!(
        failed[0].reason.as_deref(),
        Some("operand 1 was overwritten at byte 4095")
    );
}

/// Returns the reference's result of the whole case. For an op, by its own rule.
fn whole(case: &Case, operands: &[Tensor]) -> Vec<f64> {
    if let Work::Op(op) = &case.work {
        let arrays: Vec<Array> = operands.iter().map(Array::from).collect();
        let arrays: Vec<&Array> = arrays.iter().collect();
        return op.eval(&arrays).unwrap().swap_remove(case.result).into_values();
    }
    let shape = case.result().unwrap();
    let rows = shape.iter().product::<usize>() / shape.last().unwrap();
    let expected = expect(case, operands, (0..rows).collect(), DType::F16);
    expected.unwrap().values
}

#[test]
fn some_rows_are_the_same_as_in_the_whole() {
    for config in [Config::Micro, Config::Awkward] {
        for case in cases(config) {
            let operands = Operands::new(&case, DType::F16).unwrap();
            let whole = whole(&case, &operands.tensors);
            let shape = case.result().unwrap();
            let channels = *shape.last().unwrap();
            let rows: Vec<usize> = (0..whole.len() / channels).filter(|row| row % 3 != 1).collect();
            let expected = expect(&case, &operands.tensors, rows.clone(), DType::F16).unwrap();
            assert_eq!(expected.rows, rows, "{case}");
            for (row, values) in rows.iter().zip(expected.values.chunks(channels)) {
                let same = &whole[row * channels..(row + 1) * channels];
                assert_eq!(values, same, "{case}: row {row}");
            }
        }
    }
}

#[test]
fn large_results_are_sampled_from_end_to_end() {
    for case in cases(Config::Xlarge) {
        let shape = case.result().unwrap();
        let rows = shape.iter().product::<usize>() / shape.last().unwrap();
        let sampled = sample(&case, &shape);
        assert!(sampled.is_sorted_by(|a, b| a < b), "{case}");
        assert_eq!((sampled[0], sampled.last()), (0, Some(&(rows - 1))), "{case}");
        assert!(sampled.len() == rows || sampled.len() >= 8, "{case}: {sampled:?}");
        if matches!(case.work, Work::Op(Op::Attention(_))) {
            assert!(sampled.len() <= 64, "{case}: {}", sampled.len());
        }
    }
}

#[test]
fn a_query_that_sees_nothing_gets_zeros() {
    let spec = Attention {
        heads: 1,
        head_dim: 2,
        scale: 1.0,
        operands: AttentionOperands::Separate,
        ..Attention::default()
    };
    let ones = Array::new([1, 2, 2], vec![1.0; 4]).unwrap();
    let result = spec.eval_masked(&[&ones, &ones, &ones], |_, query, _| query == 1);
    assert_eq!(result.unwrap()[0].values(), [0.0, 0.0, 1.0, 1.0]);
}

#[test]
fn masks_see_by_place_from_the_end() {
    let causal = Mask {
        left: None,
        right: Some(0),
        padding: false,
    };
    // Two new queries after three cached keys.
    assert_eq!(causal.keys(0, 2, 5), 0..4);
    assert_eq!(causal.keys(1, 2, 5), 0..5);
    // With more queries than keys, the first queries see nothing.
    assert!(causal.keys(0, 5, 3).is_empty());
    let window = Mask {
        left: Some(1),
        right: Some(1),
        padding: false,
    };
    assert_eq!(window.keys(3, 6, 6), 2..5);
    assert_eq!(window.keys(0, 6, 6), 0..2);
}

#[test]
fn operands_are_numbers_of_the_dtype_and_fill_their_range() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let small = cases(Config::Small);
        let case = small.iter().find(|case| case.op_name() == "tokens").unwrap();
        let operands = Operands::new(case, dtype).unwrap();
        let values = operands.tensors[0].to_f32();
        let stored = super::operands::stored(&operands.tensors[0], dtype);
        let view = Tensor::view(
            [values.len()],
            dtype,
            std::sync::Arc::new(stored),
            0..values.len() * dtype.size(),
        );
        assert_eq!(view.unwrap().to_f32(), values);
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let largest = values.iter().fold(0f32, |m, v| m.max(v.abs()));
        assert!(
            mean.abs() < 0.05 && largest > 0.99 && largest <= 1.0,
            "{mean} {largest}"
        );
    }
}

#[test]
fn what_is_not_there_is_named() {
    let fails = |options: &Options| {
        let error = validate_on(&Planted(Fault::None), options, &mut |_, _| {});
        error.unwrap_err().to_string()
    };
    let op = Options {
        ops: vec!["gemm".into()],
        ..Options::default()
    };
    assert!(
        fails(&op)
            .starts_with("op: `gemm` is not one of accumulate, activation, activation_backward, adamw, ")
    );
    let dtype = Options {
        dtypes: vec![DType::BF16],
        ..Options::default()
    };
    assert_eq!(fails(&dtype), "dtype: the cpu computes in f32, not in bf16");
    assert_eq!(MARGIN % hipvit::graph::plan::ALIGNMENT, 0);
}

#[test]
fn custom_sizes_are_read_as_they_are_written() {
    let config: Config = "8x12x197x64".parse().unwrap();
    assert_eq!(config.to_string(), "8x12x197x64");
    assert_eq!(config.sizes().unwrap().channels(), 768);
    assert!(cases(config).iter().all(|case| case.config == config));
    for invalid in [
        "8x12x197",
        "8x12x197x0",
        "8x12x197x64x1",
        "1x1024x1x128",
        "ax1x1x1",
        "huge",
    ] {
        let error = invalid.parse::<Config>().unwrap_err().to_string();
        assert!(error.contains(invalid) && error.contains("micro"), "{error}");
    }
    for config in Config::ALL {
        assert_eq!(config.name().parse::<Config>().unwrap(), config);
    }
}

/// Checks that a tolerance is at most the bound of an element's error at the largest element.
#[test]
fn kernel_forms_have_the_tolerances_of_their_arithmetic() {
    let u = |dtype| match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        _ => 2f64.powi(-24),
    };
    let single = u(DType::F32);
    for case in [Config::Micro, Config::Awkward, Config::Heads]
        .into_iter()
        .flat_map(cases)
    {
        let Work::Kernel(_) = case.work else { continue };
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let operands = Operands::new(&case, dtype).unwrap();
            let shape = case.result().unwrap();
            let tolerance = expect(&case, &operands.tensors, sample(&case, &shape), dtype)
                .unwrap()
                .tolerance;
            let most = match case.op_name() {
                "add" => u(dtype) + 3.0 * single,
                "activation" | "swiglu" => u(dtype) + 65.0 * single,
                "attention_softmax" => u(dtype) + 96.0 * single,
                // Queries and keys have the rotation's tolerance each.
                "attention" if case.to_string().contains("rope") => {
                    let keys = operands.tensors[operands.tensors.len() - 2].shape()[1];
                    4.0 * u(dtype) + (64.0 + 2.0 * keys as f64 + 32.0) * single
                }
                "attention" => {
                    let keys = operands.tensors[1].shape()[1];
                    // A bias is multiplied and added, with a rounding each of at most twice its size.
                    let bias = case.operands.get(3).filter(|of| of.role == Role::Parameter);
                    let bias = bias.map_or(0.0, |of| 4.0 * f64::from(of.spread));
                    2.0 * u(dtype) + (64.0 + 2.0 * keys as f64 + bias) * single
                }
                "attention_statistics" => {
                    let [_, keys, channels] = *operands.tensors[1].shape() else {
                        panic!("keys")
                    };
                    // A score has at most one rounding error per channel, and a sum over keys one per key.
                    (2.0 + 2.0 * (keys as f64).ln()) * (keys + channels + 12) as f64 * single
                }
                // See `layer_norm_tolerance`, which depends on the data.
                "layer_norm" => continue,
                op => panic!("{op}"),
            };
            assert!(tolerance <= most, "{case} in {dtype}: {tolerance:e} of {most:e}");
        }
    }
}
