//! Prints the planned GPU memory of training a timm architecture from random weights, without a GPU: `cargo run --release -p hipvit-train
//! --example memory -- ARCHITECTURE [IMAGES [DTYPE [LIMIT...]]]`. Instead of a limit, `4:gradients` is what each of 4 ranks needs that divide
//! gradients, with as many images each. See docs/training.md.

use std::env;
use std::error::Error;
use std::path::Path;

use hipvit::model::Checkpoint;
use hipvit_train::initial::{InitialModel, Start};
use hipvit_train::recipe::RankKeys;
use hipvit_train::{
    MemoryBudget, MemoryLimit, MemoryPlanner, RankPlan, TensorInfo, TensorRule, TrainOptions,
};

const CLASSES: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let argument = |index: usize, default| arguments.get(index).map_or(default, String::as_str);
    let classes: Vec<String> = (0..CLASSES).map(|class| class.to_string()).collect();
    let start = Start::of(Path::new(argument(0, "vit_base_patch16_224")), None);
    let directory = tempfile::tempdir()?;
    InitialModel::new(start, &classes, 0)?.write(directory.path())?;
    let checkpoint = Checkpoint::open(Some(directory.path()))?;
    let options = TrainOptions {
        dtype: argument(2, "bf16").parse()?,
        clip_norm: Some(1.0),
        ..TrainOptions::default()
    };
    let planner = MemoryPlanner::new(&checkpoint, &options, &|_| TensorRule::default())?;
    let images = argument(1, "256").parse()?;
    let limits = arguments.get(3..).unwrap_or_default().iter().map(String::as_str);
    for text in ["unlimited"].into_iter().chain(limits) {
        if let Some((ranks, shard)) = text.split_once(':') {
            let keys = RankKeys {
                shard: shard.parse()?,
                ..RankKeys::default()
            };
            let plan = RankPlan::new(0, ranks.parse()?, &keys)?;
            let rule = |_: &TensorInfo<'_>| TensorRule::default();
            let of_rank = MemoryPlanner::with_ranks(&checkpoint, &options, &rule, Some(plan))?;
            let limit = MemoryLimit::Unlimited;
            let report = of_rank.plan(MemoryBudget { limit, images })?;
            let [weights, states, arena] = [
                report.weight_bytes,
                report.state_bytes - report.weight_bytes,
                report.recomputation.arena_bytes,
            ];
            let bytes = report.bytes();
            println!(
                "{text}: {bytes} bytes: weights {weights}, states {states}, activations and gradients {arena}"
            );
            continue;
        }
        let limit = text.parse()?;
        match planner.plan(MemoryBudget { limit, images }) {
            Ok(report) => println!("{text}: {}", report.summary()),
            Err(error) => println!("{text}: {error}"),
        }
    }
    Ok(())
}
