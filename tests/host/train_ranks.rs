//! `hipvit train` on several ranks, as a launcher starts them.

use std::fs;
use std::path::Path;
use std::process::{Child, Output};
use std::thread::sleep;
use std::time::Duration;

use super::train::Set;
use crate::support::launcher::{Launcher, ends_soon};
use crate::support::program::{stderr, stdout};

/// Trains on ranks with equal arguments. Returns the output of each.
fn train(set: &Set, ranks: usize, name: &str, more: &[&str]) -> Vec<Output> {
    let launcher = Launcher::new(ranks, &set.path("."));
    let children: Vec<Child> = (0..ranks)
        .map(|rank| launcher.start(rank, set.arguments(name, more)))
        .collect();
    children
        .into_iter()
        .map(|child| child.wait_with_output().unwrap())
        .collect()
}

fn assert_success(outputs: &[Output]) {
    for output in outputs {
        assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    }
    for output in &outputs[1..] {
        assert_eq!((stdout(output), stderr(output)), ("", ""));
    }
}

#[test]
fn two_ranks_have_the_bits_of_one_with_two_micro_batches() {
    let set = Set::new();
    // Everything that depends on the place of an image in the batch.
    set.write_recipe(
        "epochs = 3\nbatch = 16\ndrop_path = 0.5\nema_decay = 0.5\n[augmentation]\ncrop = \"random_resized\"\nflip = 0.5\nmixup = 0.8\ncutmix = 1.0\nerasing = 0.5\n",
    );
    assert_success(&[set.train("one", &["--accumulate", "2"])]);
    let outputs = train(&set, 2, "two", &[]);
    assert_success(&outputs);
    assert!(stdout(&outputs[0]).contains("trained for 3 epochs, 9 steps"));
    assert_eq!(set.log("two"), set.log("one"));
    assert!(set.weights("two") == set.weights("one"));
    let evaluation = |name: &str| fs::read_to_string(set.path(name).join("evaluation.json")).unwrap();
    assert_eq!(evaluation("two"), evaluation("one"));
    // Divided states are not clipped in the same order of sums, but the run is the same up to rounding.
    for shard in ["optimizer", "gradients", "parameters"] {
        assert_success(&train(&set, 2, shard, &["--shard", shard]));
        let losses = |name: &str| set.log(name).0;
        for ((step, loss), (_, expected)) in losses(shard).into_iter().zip(losses("one")) {
            assert!(
                (loss - expected).abs() < 1e-3,
                "{shard}, step {step}: {loss}, expected {expected}"
            );
        }
    }
}

/// Waits until a checkpoint exists.
fn wait_for_checkpoint(run: &Path, child: &mut Child) {
    let has_one = || {
        fs::read_dir(run.join("checkpoints")).is_ok_and(|entries| {
            entries
                .flatten()
                .any(|entry| entry.file_name().to_string_lossy().starts_with("step-"))
        })
    };
    while !has_one() {
        assert!(
            child.try_wait().unwrap().is_none(),
            "ended before the first checkpoint"
        );
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_lost_rank_is_named_and_the_run_goes_on_with_any_number_of_ranks() {
    let set = Set::new();
    for shard in ["none", "gradients"] {
        let name = |end: &str| format!("{shard}-{end}");
        let (whole, parts, one) = (name("whole"), name("parts"), name("one"));
        assert_success(&train(&set, 2, &whole, &["--shard", shard]));
        let launcher = Launcher::new(2, &set.path("."));
        let mut ranks: Vec<Child> = (0..2)
            .map(|rank| launcher.start(rank, set.arguments(&parts, &["--shard", shard])))
            .collect();
        wait_for_checkpoint(&set.path(&parts), &mut ranks[0]);
        let mut lost = ranks.remove(1);
        lost.kill().unwrap();
        lost.wait().unwrap();
        let output = ends_soon(ranks.remove(0));
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("rank 1 has ended"),
            "{}",
            stderr(&output)
        );
        copy(&set.path(&parts), &set.path(&one));

        assert_success(&train(&set, 2, &parts, &["--resume"]));
        assert_eq!(set.log(&parts), set.log(&whole), "{shard}");
        assert!(set.weights(&parts) == set.weights(&whole), "{shard}");
        // One rank adds the gradients in another order.
        assert_success(&[set.train(&one, &["--resume"])]);
        let (steps, accuracies) = set.log(&one);
        assert_eq!((steps.len(), accuracies.len()), (120, 40));
        assert!(accuracies[39] > 0.7, "{accuracies:?}");
    }
}

/// Copies a directory.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn an_error_of_a_rank_ends_all() {
    let set = Set::new();
    set.write_recipe("epochs = 1\nbatch = 16\n");
    fs::write(set.path("data/train/1/05.png"), "not an image").unwrap();
    for output in train(&set, 2, "strict", &[]) {
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains("1/05.png"), "{}", stderr(&output));
    }
    let outputs = train(&set, 2, "lenient", &["--skip-broken", "--json"]);
    assert_eq!(outputs[0].status.code(), Some(1), "{}", stderr(&outputs[0]));
    assert!(
        stderr(&outputs[0]).contains("1/05.png"),
        "{}",
        stderr(&outputs[0])
    );
    assert!(
        stdout(&outputs[0]).contains("\"skipped\":1"),
        "{}",
        stdout(&outputs[0])
    );
    // Rank 1 has other options.
    let launcher = Launcher::new(2, &set.path("."));
    let ranks = [0, 1].map(|rank| {
        let more: &[&str] = if rank == 0 { &[] } else { &["--skip-broken"] };
        launcher.start(rank, set.arguments("different", more))
    });
    for rank in ranks {
        let output = ends_soon(rank);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let expected = "--skip-broken: false at rank 0, true at rank 1";
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
    for output in train(&set, 3, "undivided", &["--skip-broken"]) {
        let expected = "16 images per step are not divided equally among 3 ranks";
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}
