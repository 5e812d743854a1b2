//! Shares and speedup of several GPUs.

use std::sync::Arc;

use super::row::{DeviceShare, Row, Scaling};
use super::times::Times;
use super::{DeviceInfo, Spec};
use hipvit::exec::Executor;
use hipvit::hip::World;
use hipvit::run_config::ExecutionConfig;
use hipvit::session::{Device, Session};

/// Adds the number of images that each replica processed between `before` and `after`.
pub(super) fn add_shares(shares: &mut Vec<u64>, before: &[u64], after: &[u64]) {
    shares.resize(after.len(), 0);
    for (share, (before, after)) in shares.iter_mut().zip(before.iter().zip(after)) {
        *share += after - before;
    }
}

/// Returns the names of a session's GPUs, e.g. `4 × NAME`. With several processes, only those of this
/// process.
pub(super) fn name(session: &Session) -> String {
    let mut names: Vec<(String, usize)> = Vec::new();
    let gpus = session
        .executors()
        .iter()
        .flat_map(|executor| &executor.info().devices);
    for gpu in gpus {
        let name = &gpu.properties().name;
        match names.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += processes(session),
            None => names.push((name.clone(), processes(session))),
        }
    }
    let names: Vec<String> = names
        .iter()
        .map(|(name, count)| format!("{count} × {name}"))
        .collect();
    names.join(" + ")
}

fn processes(session: &Session) -> usize {
    session.world().map_or(1, World::size)
}

/// Returns the session's GPUs in this process with their images per second. The GPUs of a divided model share
/// its images equally.
pub(super) fn devices(session: &Session, shares: &[u64], end_to_end: Option<&Times>) -> Vec<DeviceShare> {
    let all: u64 = shares.iter().sum();
    let rate = |images: &u64| Some(*images as f64 / all.max(1) as f64 * end_to_end?.images_per_s);
    let of_replica = |(replica, executor): (usize, &Arc<dyn Executor>)| {
        let gpus = executor.info().devices.clone();
        let images_per_s = shares
            .get(replica)
            .and_then(rate)
            .map(|rate| rate / (processes(session) * gpus.len()) as f64);
        gpus.into_iter().map(move |gpu| DeviceShare {
            device: DeviceInfo::gpu(&gpu),
            numa_node: gpu.properties().numa_node,
            images_per_s,
        })
    };
    session
        .executors()
        .iter()
        .enumerate()
        .flat_map(of_replica)
        .collect()
}

/// Compares each row of several GPUs with the row of one GPU that is otherwise equal, if there is one.
pub(super) fn compare(specs: &[Spec], rows: &mut [Row]) {
    let rate = |row: &Row| Some(row.end_to_end.as_ref()?.images_per_s);
    let is_one_of = |one: &Spec, set: &Spec| {
        let alone = Spec {
            device: one.device,
            gpus: Vec::new(),
            execution: ExecutionConfig {
                parallel: one.execution.parallel,
                ..set.execution.clone()
            },
            ..set.clone()
        };
        set.gpus.iter().any(|&gpu| Device::Hip(gpu) == one.device) && *one == alone
    };
    let rates: Vec<(&Spec, Option<f64>)> = specs.iter().zip(rows.iter().map(rate)).collect();
    for (spec, row) in specs.iter().zip(rows) {
        let one = rates
            .iter()
            .find(|(one, _)| is_one_of(one, spec))
            .and_then(|(_, rate)| *rate);
        if let (Some(one), Some(all)) = (one.filter(|one| *one > 0.0), rate(row)) {
            row.scaling = Some(Scaling {
                one_images_per_s: one,
                factor: all / one,
                efficiency: all / one / spec.gpus.len() as f64,
            });
        }
    }
}
