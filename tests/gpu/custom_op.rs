//! The op of `examples/custom_op.rs`, and HIP sources that are wrong, on a GPU.
#![allow(unsafe_code, reason = "HIP kernels state what they access")]

use std::borrow::Cow;

use hipvit::custom::{CustomOp, HipKernel, HipLaunch, HipStep, OpBuilder};
use hipvit::hip::Launch;
use hipvit::image::Limits;
use hipvit::ops::{OpError, Shape};
use hipvit::reference::{Array, model_tolerance};
use hipvit::{DType, Session, digits};
use hipvit_diagnostics::validate::{Options, validate_op};

use crate::support::custom_op::example::{AddLayerNorm, compare, fuse};
use crate::support::custom_op::{EPSILON, FUSED, SHAPES, Undefined, operands, with_op};
use crate::support::gpu::{device, dtypes};

#[test]
fn a_fusion_gives_the_logits_of_the_model() {
    let Some((device, _shared)) = device() else {
        return;
    };
    for dtype in dtypes() {
        let builder = Session::builder().device(device).dtype(dtype);
        let compared = compare(&builder).unwrap();
        assert_eq!((compared.device, compared.fused), (device, FUSED));
        let nodes = 40;
        let tolerance = 2.0 * model_tolerance(dtype, nodes);
        assert!(
            f64::from(compared.difference) < tolerance,
            "{dtype}: {compared:?}"
        );

        let session = builder.rewrite(fuse).tinyvit32().unwrap();
        let image = digits::samples()
            .next()
            .unwrap()
            .decode(Limits::default())
            .unwrap();
        let runs: Vec<_> = (0..4).map(|_| session.run([&image]).unwrap()).collect();
        assert!(runs.iter().all(|run| run.logits() == runs[0].logits()), "{dtype}");
        let replays = session.hip_graphs().unwrap();
        assert!(
            replays.replayed_runs > 0 && replays.fallback.is_none(),
            "{replays:?}"
        );
    }
}

#[test]
fn the_kernel_agrees_with_the_reference() {
    let Some((device, _shared)) = device() else {
        return;
    };
    let op = OpBuilder::new(AddLayerNorm { epsilon: EPSILON }).hip().build();
    let options = Options {
        device,
        dtypes: dtypes(),
        untimed: true,
        ..Options::default()
    };
    for shape in SHAPES {
        let report = validate_op(&op, &operands(&shape), &options).unwrap();
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.passed, 4 * dtypes().len());
    }
}

/// An op of LayerNorm's operands, with a source and a launch that may not fit.
#[derive(Debug)]
struct Faulty {
    source: &'static str,
    launch: HipLaunch,
}

impl CustomOp for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        Ok(vec![operands[0].to_vec()])
    }

    fn reference(&self, _operands: &[&Array], _results: &mut [Array]) {}
}

// SAFETY: the kernels of the sources below access no memory.
unsafe impl HipKernel for Faulty {
    fn source(&self) -> Cow<'static, str> {
        self.source.into()
    }

    fn launches(&self, _step: &HipStep<'_>) -> Result<Vec<HipLaunch>, OpError> {
        Ok(vec![self.launch.clone()])
    }
}

#[test]
fn errors_name_the_node_and_the_op() {
    let Some((device, _shared)) = device() else {
        return;
    };
    let builder = || Session::builder().device(device).dtype(DType::F32);
    let missing = with_op(builder(), || OpBuilder::new(Undefined { operands: 3 }).build());
    assert_eq!(
        missing.tinyvit32().unwrap_err().to_string(),
        "node `blocks.1.norm2`: undefined has no kernel for GPUs. Add one with `OpBuilder::hip`, or use the CPU"
    );

    const GOOD: &str = "extern \"C\" __attribute__((global)) void good(float *x, unsigned n) {}";
    let good = || HipLaunch::new("good", Launch::new(1, 64));
    let cases = [
        ("extern \"C\" nonsense", good(), "faulty: ", "error: "),
        (
            GOOD,
            HipLaunch::new("absent", Launch::new(1, 64)),
            "faulty: ",
            "`absent`",
        ),
        (
            GOOD,
            good().operand(0),
            "faulty: ",
            "takes 2 parameters, but 1 were given",
        ),
        (GOOD, good().u32(1).u32(1), "faulty: ", "a value was given"),
        (GOOD, good().operand(7).u32(1), "faulty: ", "operand 7 is missing"),
        (
            GOOD,
            HipLaunch::new("good", Launch::new(0, 64)).operand(0).u32(1),
            "faulty: ",
            "is empty",
        ),
    ];
    for (source, launch, op, reason) in cases {
        let faulty = move || {
            let launch = launch.clone();
            OpBuilder::new(Faulty { source, launch }).hip().build()
        };
        let session = with_op(builder(), faulty).tinyvit32();
        let image = digits::samples()
            .next()
            .unwrap()
            .decode(Limits::default())
            .unwrap();
        let error = session.and_then(|session| session.run([&image])).unwrap_err();
        let error = error.to_string();
        let names = error.starts_with("node `blocks.1.norm2`: ") && error.contains(op);
        assert!(
            names && error.contains(reason) && !error.contains('\n'),
            "{error}"
        );
    }
}
