//! The metrics in the manual, docs/serving.md, are those that a server exposes.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;

/// A metric as the manual or the server describes it.
#[derive(Debug, PartialEq)]
struct Described {
    kind: String,
    labels: Vec<String>,
    help: String,
}

/// Returns the rows of the manual's table: | `name` | type | labels | meaning |
fn of_manual() -> BTreeMap<String, Described> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/serving.md");
    let manual = std::fs::read_to_string(path).unwrap();
    let rows = manual.lines().filter(|line| line.starts_with("| `hipvit_"));
    let row = |row: &str| {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let &[name, kind, labels, help] = &cells[..] else {
            panic!("{row}");
        };
        let labels = labels.split(", ").map(|label| label.trim_matches('`').to_owned());
        let described = Described {
            kind: kind.into(),
            labels: labels.filter(|label| label != "-").collect(),
            help: help.into(),
        };
        (name.trim_matches('`').to_owned(), described)
    };
    rows.map(row).collect()
}

/// Returns metrics with a sample of each.
fn all() -> Arc<Metrics> {
    let metrics = Metrics::new();
    let engine = |runs| metrics.engine("vit", runs, Arc::default());
    let images = engine(Runs::Images);
    images.batch(2, Duration::ZERO, Duration::from_millis(1), None);
    engine(Runs::Texts).batch(2, Duration::ZERO, Duration::from_millis(1), None);
    images.stage(Stage::Queue, Duration::ZERO);
    images.shed(Priority::Bulk, 1);
    images.dropped(1);
    images.retried(1);
    images.lost("hip:0");
    images.restarted("hip:0");
    metrics.request(("vit", "http"), Priority::Interactive, None, Duration::ZERO);
    metrics.refused_request("http", "too_large");
    metrics.closed_connection(Closed::Idle);
    metrics.set_queued("vit", Priority::Interactive, 1);
    metrics.set_instances("vit", "cpu", 1);
    metrics.set_cache("vit", "cpu", [1, 4]);
    engine(Runs::Generation).generated(3, Duration::ZERO, 1);
    let gpu = ByGpu {
        device: "hip:0".into(),
    };
    for family in [&metrics.gpu_memory_used, &metrics.gpu_memory] {
        family.get_or_create(&gpu).set(1);
    }
    for family in [&metrics.gpu_busy, &metrics.gpu_power, &metrics.gpu_temperature] {
        family.get_or_create(&gpu).set(1.0);
    }
    metrics.gpu_energy.get_or_create(&gpu).inc();
    metrics
}

/// Returns the names of a sample's labels.
fn labels(sample: &str) -> Vec<String> {
    let Some((_, rest)) = sample.split_once('{') else {
        return Vec::new();
    };
    let pairs = rest.split_once('}').unwrap().0.split("\",");
    let names = pairs.map(|pair| pair.split('=').next().unwrap().to_owned());
    names.filter(|name| name != "le").collect()
}

fn exposed() -> BTreeMap<String, Described> {
    let text = all().encode();
    let types = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let described = |(name, kind): (&str, &str)| {
        let help = format!("# HELP {name} ");
        let help = text.lines().find_map(|line| line.strip_prefix(&help)).unwrap();
        let sample = |line: &&str| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| {
                ["{", " ", "_total", "_count", "_info"]
                    .iter()
                    .any(|begin| rest.starts_with(begin))
            })
        };
        let sample = text
            .lines()
            .find(sample)
            .unwrap_or_else(|| panic!("{name} has no sample"));
        let described = Described {
            kind: kind.into(),
            labels: labels(sample),
            // The encoder adds a full stop.
            help: help.trim_end_matches('.').into(),
        };
        (name.to_owned(), described)
    };
    types.map(described).collect()
}

#[test]
fn the_manual_lists_every_metric_with_its_type_labels_and_meaning() {
    let (manual, exposed) = (of_manual(), exposed());
    assert!(exposed.len() > 20);
    for (name, described) in &exposed {
        assert_eq!(manual.get(name), Some(described), "{name}");
    }
    assert_eq!(manual.len(), exposed.len(), "{:?}", manual.keys());
}
