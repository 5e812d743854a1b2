//! The number of micro-batches per step, chosen for a memory limit.

use hipvit::error::Result;
use hipvit::model::Checkpoint;

use crate::memory::MemoryReport;
use crate::memory_planner::MemoryPlanner;
use crate::ranks::RankPlan;
use crate::trained::{TensorInfo, TensorRule};
use crate::trainer::{TrainOptions, computed_dtype, placement};

/// Time of a step that halving its micro-batches adds, as a share. On an H100, two steps of ViT-B/16 with 128 images took 1.09 times as long
/// as one with 256, of which the second update is about 0.01.
const HALVING: f64 = 0.07;

/// Returns the number of micro-batches for steps of `images` images per rank within the limit of `options`: the one with the least time for
/// recomputation and for smaller products. If none is within the limit, returns `images`.
///
/// # Errors
///
/// The errors of [`MemoryPlanner::new`], and [`Error::Argument`](hipvit::Error::Argument) for a share of a GPU's memory without a GPU.
pub(crate) fn choose(
    checkpoint: &Checkpoint,
    options: &TrainOptions,
    rule: &dyn Fn(&TensorInfo<'_>) -> TensorRule,
    images: usize,
    ranks: Option<RankPlan>,
) -> Result<usize> {
    let placement = placement(options)?;
    let limit = options.memory.map(|budget| budget.limit.bytes(&placement));
    let Some(limit) = limit.transpose()?.flatten() else {
        return Ok(1);
    };
    let planner = |accumulate| {
        let options = TrainOptions {
            accumulate,
            // The planner's dtype is that of activations.
            dtype: computed_dtype(&placement, options),
            ..options.clone()
        };
        MemoryPlanner::with_ranks(checkpoint, &options, rule, ranks)
    };
    let (whole, divided) = (planner(1)?, planner(2)?);
    let mut best = None;
    let mut count = 1;
    loop {
        let planner = if count == 1 { &whole } else { &divided };
        let report = planner.within(images.div_ceil(count), limit)?;
        let cost = cost(&report, count);
        if report.bytes() <= limit && best.is_none_or(|(_, least)| cost < least) {
            best = Some((count, cost));
        }
        // More micro-batches only cost more.
        if count == images || best.is_some_and(|(_, least)| least <= HALVING * f64::from(count.ilog2() + 1)) {
            break;
        }
        count = (2 * count).min(images);
    }
    Ok(best.map_or(images, |(count, _)| count))
}

/// Returns the additional time of a step, as a share.
fn cost(report: &MemoryReport, count: usize) -> f64 {
    report.additional_flops() + HALVING * f64::from(count.ilog2())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hipvit::Device;

    use super::*;
    use crate::{MemoryBudget, MemoryLimit};

    const IMAGES: usize = 48;

    #[test]
    fn the_cheapest_number_within_the_limit_is_chosen() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/hf_vit");
        let checkpoint = Checkpoint::open(Some(&directory)).unwrap();
        let rule = |_: &TensorInfo<'_>| TensorRule::default();
        let options = |limit, accumulate| TrainOptions {
            device: Device::Cpu,
            memory: Some(MemoryBudget {
                limit,
                images: IMAGES,
            }),
            accumulate,
            ..TrainOptions::default()
        };
        let chosen = |limit| choose(&checkpoint, &options(limit, 1), &rule, IMAGES, None).unwrap();
        assert_eq!(chosen(MemoryLimit::Unlimited), 1);
        let planners = [1, 2].map(|accumulate| {
            let options = options(MemoryLimit::Unlimited, accumulate);
            MemoryPlanner::new(&checkpoint, &options, &rule).unwrap()
        });
        let counts = [1, 2, 4, 8, 16, 32, 48];
        let report = |count: usize, limit| {
            let planner = &planners[usize::from(count > 1)];
            planner.within(IMAGES.div_ceil(count), limit).unwrap()
        };
        let most = report(1, usize::MAX).bytes();
        let mut found = Vec::new();
        for limit in (1..=16).map(|part| most * part / 16) {
            let fitting = counts.map(|count| (count, report(count, limit)));
            let fitting = fitting.iter().filter(|(_, report)| report.bytes() <= limit);
            let costs = fitting.map(|(count, report)| (cost(report, *count), *count));
            let best = costs.min_by(|a, b| a.0.total_cmp(&b.0));
            let expected = best.map_or(IMAGES, |(_, count)| count);
            assert_eq!(chosen(MemoryLimit::Bytes(limit as u64)), expected, "{limit}");
            found.push(expected);
        }
        // Some limits need smaller micro-batches, and some need none.
        found.dedup();
        assert!(found.len() > 2 && found.ends_with(&[1]), "{found:?}");
    }
}
