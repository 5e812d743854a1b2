//! Names of the devices of this machine, which a shell offers as completions.

use clap::builder::StyledStr;
use clap_complete::engine::CompletionCandidate;
use hipvit::hip::Runtime;

fn candidate(name: String, help: String) -> CompletionCandidate {
    CompletionCandidate::new(name).help(Some(StyledStr::from(help)))
}

/// Returns the devices of this machine, and the set of all GPUs if there are several.
pub(crate) fn device_sets() -> Vec<CompletionCandidate> {
    let mut sets = devices();
    // Behind auto and cpu.
    if sets.len() > 3 {
        let count = sets.len() - 2;
        sets.push(candidate("hip:all".into(), format!("all {count} GPUs")));
    }
    sets
}

/// Returns the devices of this machine.
pub(crate) fn devices() -> Vec<CompletionCandidate> {
    let mut devices = vec![
        candidate("auto".into(), "the first GPU, or the CPU if there is none".into()),
        candidate("cpu".into(), "the CPU".into()),
    ];
    let gpus = Runtime::open()
        .and_then(|runtime| runtime.devices())
        .unwrap_or_default();
    devices.extend(gpus.iter().map(|gpu| {
        let properties = gpu.properties();
        let help = format!("{}, {}", properties.name, properties.target);
        candidate(format!("hip:{}", gpu.ordinal()), help)
    }));
    devices
}
