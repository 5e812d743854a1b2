//! The list of metrics in the manual, docs/serving.md, is the list that a server exposes.

use std::collections::BTreeMap;

use super::*;

/// A metric as the manual or the server describes it.
#[derive(Debug, PartialEq)]
struct Described {
    kind: String,
    help: String,
}

/// The rows of the manual's table: | `name` | type | labels | meaning |
fn of_manual() -> BTreeMap<String, (Described, Vec<String>)> {
    let manual = std::fs::read_to_string(at("docs/serving.md")).unwrap();
    let rows = manual.lines().filter(|line| line.starts_with("| `hipvit_"));
    let rows = rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let &[name, kind, labels, help] = &cells[..] else {
            panic!("{row}");
        };
        let labels = labels.split(", ").map(|label| label.trim_matches('`').to_owned());
        let labels = labels.filter(|label| !label.is_empty() && label != "-").collect();
        let described = Described {
            kind: kind.into(),
            help: help.into(),
        };
        (name.trim_matches('`').to_owned(), (described, labels))
    });
    rows.collect()
}

fn labels(line: &str) -> Vec<String> {
    let Some((_, rest)) = line.split_once('{') else {
        return Vec::new();
    };
    let pairs = rest.split_once('}').unwrap().0.split("\",");
    let names = pairs.map(|pair| pair.split('=').next().unwrap().to_owned());
    names.filter(|name| name != "le").collect()
}

#[test]
fn the_manual_lists_every_metric_with_its_type_labels_and_meaning() {
    let running = Running::digits();
    running.infer(&samples(&[1]));
    let text = running.get("/metrics").text();
    let mut exposed = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let help = format!("# HELP {name} ");
            let help = text.lines().find_map(|line| line.strip_prefix(&help)).unwrap();
            let described = Described {
                kind: kind.into(),
                // The encoder ends it.
                help: help.trim_end_matches('.').into(),
            };
            exposed.insert(name.to_owned(), described);
        }
    }
    let manual = of_manual();
    for (name, described) in &exposed {
        let (listed, names) = manual
            .get(name)
            .unwrap_or_else(|| panic!("docs/serving.md has no `{name}`"));
        assert_eq!(listed, described, "{name}");
        // Of those that have a sample here.
        let sample = |line: &&str| {
            let rest = line.strip_prefix(name.as_str());
            rest.is_some_and(|rest| {
                rest.starts_with(['{', ' ']) || rest.starts_with("_total") || rest.starts_with("_count")
            })
        };
        if let Some(sample) = text.lines().find(sample) {
            assert_eq!(labels(sample), *names, "{name}");
        }
    }
    // Those of GPUs are exposed where there is one.
    for name in manual.keys() {
        assert!(
            exposed.contains_key(name) || name.starts_with("hipvit_gpu_"),
            "there is no {name}"
        );
    }
    assert!(exposed.len() > 15, "{text}");
}
