//! Losses, optimisers and relative positions of training on a GPU, beside the CPU.

use hipvit::model::{Checkpoint, InputKind, detector_training};
use hipvit::tensor::Input;
use hipvit::{DType, Device};
use hipvit_train::{
    BoxOptions, ContrastiveOptions, DepthLoss, DistillationKind, DistillationLoss, LambOptions, LossKind,
    Objective, OptimizerOptions, PairOptions, PrecisionOptions, Sequences, SgdOptions, StepReport, Targets,
    TensorRule, TextOptions, Texts, TrainOptions, Trainer,
};

use crate::support::at;
use crate::support::gpu::{device, dtypes};

const STEPS: usize = 3;
const IMAGES: usize = 3;

/// Tokens of a text of the dual encoders.
const CONTEXT: usize = 16;

/// Returns numbers from −1 to 1 that repeat after 4,093.
fn numbers(len: usize, seed: usize) -> Vec<f32> {
    let number = |i: usize| ((i * i + 17 * i + seed * 1009) % 4093) as f32 / 2046.0 - 1.0;
    (0..len).map(number).collect()
}

/// Returns objects, five numbers each: the class, and a box.
fn objects(len: usize) -> Vec<f32> {
    let number = |at: usize| match at % 5 {
        0 => (at / 5 % 4) as f32,
        _ => 0.25 + (at * 7 % 13) as f32 / 32.0,
    };
    (0..len).map(number).collect()
}

fn distillation(kind: DistillationKind) -> Objective {
    Objective::Distillation(DistillationLoss {
        base: LossKind::CrossEntropy,
        kind,
        alpha: 0.5,
        temperature: 2.0,
    })
}

/// Returns the reports of some steps.
fn train(
    device: Device,
    dtype: DType,
    (name, loss, optimizer): (&str, Objective, OptimizerOptions),
) -> Vec<StepReport> {
    let checkpoint = Checkpoint::open(Some(&at("tests/golden").join(name))).unwrap();
    let options = TrainOptions {
        device,
        dtype,
        input: InputKind::PixelValues,
        loss,
        optimizer,
        clip_norm: Some(1.0),
        // No gradient overflows.
        precision: PrecisionOptions {
            loss_scale: 16.0,
            ..PrecisionOptions::default()
        },
        ..TrainOptions::default()
    };
    let rule = TensorRule {
        weight_decay: 0.05,
        ..TensorRule::default()
    };
    let mut trainer = Trainer::new(checkpoint, options, &|_| rule).unwrap();
    let (width, height) = trainer.preprocess().output_size();
    let images = numbers(IMAGES * 3 * width * height, 1);
    let width = trainer.target_width();
    let values = match loss {
        Objective::Contrastive(_) => numbers(IMAGES * width, 2),
        // Depths from 0.5 to 1.5, some of which are unknown.
        Objective::Depth(_) => numbers(IMAGES * width, 2)
            .into_iter()
            .map(|value| if value > 0.8 { -1.0 } else { 1.0 + value / 2.0 })
            .collect(),
        Objective::Boxes(_) => objects(IMAGES * width),
        _ => (0..IMAGES * width)
            .map(|at| if at % width == at / width { 1.0 } else { 0.0 })
            .collect(),
    };
    // Tokens of both vocabularies, some of which occur several times.
    let tokens: Vec<i32> = (0..IMAGES * width).map(|at| (at * at % 53) as i32).collect();
    let places: Vec<f32> = (0..IMAGES * width)
        .map(|at| if at % width == 3 + at / width { 1.0 } else { 0.0 })
        .collect();
    let texts = match loss {
        Objective::Pairs(pairs) => Texts {
            tokens: &tokens,
            places: if pairs.tokens < CONTEXT { &places } else { &[] },
        },
        _ => Texts::default(),
    };
    let teacher = match loss {
        Objective::Distillation(_) => numbers(IMAGES * width, 3),
        _ => Vec::new(),
    };
    // Texts of different lengths.
    let read: Vec<i32> = (0..IMAGES * width).map(|at| (at * at % 40) as i32).collect();
    let positions: Vec<i32> = (0..IMAGES * width).map(|at| 2 + (at % width) as i32).collect();
    let label = |at: usize| {
        if at % width < 4 + at / width {
            ((at + 1) * (at + 1) % 40) as i32
        } else {
            -100
        }
    };
    let labels: Vec<i32> = (0..IMAGES * width).map(label).collect();
    let sequences = match loss {
        Objective::Texts(_) => Sequences {
            tokens: &read,
            positions: &positions,
            labels: &labels,
        },
        _ => Sequences::default(),
    };
    let targets = Targets {
        values: &values,
        teacher: &teacher,
        texts,
        sequences,
        ..Targets::default()
    };
    let step = |_| trainer.step(Input::Values(&images), targets, 1e-2).unwrap();
    (0..STEPS).map(step).collect()
}

#[test]
fn losses_and_relative_positions_are_those_of_the_cpu() {
    let Some((device, _shared)) = device() else { return };
    let sgd = OptimizerOptions::Sgd(SgdOptions {
        momentum: 0.9,
        nesterov: false,
    });
    let lamb = OptimizerOptions::Lamb(LambOptions {
        epsilon: 1e-3,
        ..LambOptions::default()
    });
    let cross_entropy = Objective::Targets(LossKind::CrossEntropy);
    let [clip, siglip] = [ContrastiveOptions::info_nce(), ContrastiveOptions::sigmoid()];
    // A causal tower with fewer tokens than its context, and one that sees all tokens.
    let [both_of_clip, both_of_siglip] = [(clip, 9), (siglip, CONTEXT)]
        .map(|(contrastive, tokens)| Objective::Pairs(PairOptions { contrastive, tokens }));
    let texts = Objective::Texts(TextOptions { tokens: 9 });
    let detector = at("tests/golden/rt_detr/rt_detr_plain");
    let boxes = Objective::Boxes(BoxOptions {
        loss: detector_training(&detector).unwrap().loss,
        objects: 2,
    });
    for case in [
        ("timm_beit", cross_entropy, sgd),
        ("timm_swin", cross_entropy, sgd),
        ("hf_swinv2", cross_entropy, sgd),
        ("timm_hiera", cross_entropy, sgd),
        ("timm_deit_distilled", distillation(DistillationKind::Soft), lamb),
        ("hf_vit", distillation(DistillationKind::Hard), sgd),
        ("hf_clip_projection", Objective::Contrastive(clip), sgd),
        ("timm_vit_embedding", Objective::Contrastive(siglip), lamb),
        ("zero_shot/hf_clip", both_of_clip, sgd),
        ("zero_shot/hf_siglip", both_of_siglip, lamb),
        ("generation/trocr_small", texts, sgd),
        (
            "depth/depth_anything_metric",
            Objective::Depth(DepthLoss::ScaleInvariant),
            sgd,
        ),
        (
            "depth/depth_anything",
            Objective::Depth(DepthLoss::ScaleAndShiftInvariant),
            sgd,
        ),
        ("rt_detr/rt_detr_plain", boxes, sgd),
    ] {
        let expected = train(Device::Cpu, DType::F32, case);
        // Relative depths are fitted by a line: predictions of random weights differ by less than a rounding in 16 bits. Rounding selects and
        // matches other queries of a detector.
        let needs_f32 = matches!(
            case.1,
            Objective::Depth(DepthLoss::ScaleAndShiftInvariant) | Objective::Boxes(_)
        );
        for dtype in dtypes()
            .into_iter()
            .filter(|&dtype| dtype == DType::F32 || !needs_f32)
        {
            // Relative errors of a loss and of a norm; those of 16 bits are a few of their roundings.
            let bound = match dtype {
                DType::F32 => 1e-3,
                DType::F16 => 2e-2,
                _ => 1e-1,
            };
            let found = train(device, dtype, case);
            let mut worst = 0.0_f32;
            for (found, expected) in found.iter().zip(&expected) {
                let error = |found: f32, expected: f32| (found / expected - 1.0).abs();
                worst = worst.max(error(found.loss, expected.loss));
                worst = worst.max(error(found.grad_norm, expected.grad_norm));
            }
            println!("PASS {dtype:<4} {}: losses and norms off by {worst:.1e}", case.0);
            assert!(
                worst <= bound,
                "{}, {dtype}: {found:?}, expected {expected:?}",
                case.0
            );
        }
    }
}
