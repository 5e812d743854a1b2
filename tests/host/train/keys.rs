//! Keys of recipes.

use std::fs;

use serde_json::Value;

use super::Set;
use crate::support::program::stderr;

/// Returns the events of a kind in the log of a run.
fn events(set: &Set, run: &str, kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(set.path(run).join("log.jsonl")).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["event"] == kind).collect()
}

#[test]
fn epochs_are_evaluated_at_intervals_and_at_the_end() {
    let set = Set::new();
    set.write_recipe("epochs = 5\nbatch = 16\n[evaluation]\nevery = 2\n");
    let output = set.train("run", &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let evaluated: Vec<bool> = events(&set, "run", "epoch")
        .iter()
        .map(|event| event["val_accuracy"].is_number())
        .collect();
    assert_eq!(evaluated, [false, true, false, true, true]);
    set.write_recipe("[evaluation]\nevery = 0\n");
    let refused = set.train("refused", &[]);
    assert!(
        stderr(&refused).contains("`evaluation.every`"),
        "{}",
        stderr(&refused)
    );
}
