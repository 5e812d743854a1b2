//! The command line in several processes, as a launcher starts it. Each process runs a share, and rank 0
//! writes the output of a single process.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::at;
use crate::support::bench::{QUICK, rows};
use crate::support::launcher::{Launcher, ends_soon, images, on_cpu};
use crate::support::program::{stderr, stdout};

/// Runs one process in this folder without a launcher.
fn one_process(folder: &Path, args: &[&str]) -> Output {
    on_cpu()
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Checks that the ranks' output is that of one process: files, standard output, errors and exit code of rank
/// 0. Other ranks print nothing.
fn same_as_one_process(folder: &Path, sizes: &[usize], args: &[&str], file: Option<&str>) {
    let read = || file.map(|file| fs::read(folder.join(file)).unwrap());
    let expected = one_process(folder, args);
    let expected_file = read();
    for &size in sizes {
        if let Some(file) = file {
            fs::remove_file(folder.join(file)).unwrap();
        }
        let outputs = Launcher::new(size, folder).run(args);
        let what = format!("{args:?} by {size}");
        assert_eq!(stderr(&outputs[0]), stderr(&expected), "{what}");
        assert_eq!(outputs[0].status.code(), expected.status.code(), "{what}");
        assert_eq!(stdout(&outputs[0]), stdout(&expected), "{what}");
        assert!(read() == expected_file, "{what}: another file");
        for output in &outputs[1..] {
            assert_eq!((stdout(output), stderr(output)), ("", ""), "{what}");
            assert_eq!(output.status.code(), Some(0), "{what}");
        }
    }
}

#[test]
fn embeddings_have_the_bytes_of_one_process() {
    let folder = images(20);
    // Two batches of different ranks contain a broken image. A path that is listed twice is reported twice.
    for broken in ["in/04.png", "in/19.png"] {
        fs::write(folder.path().join(broken), "broken").unwrap();
    }
    for more in [
        &["-o", "out.npy"][..],
        &["-o", "out.jsonl", "--normalize"],
        &["-o", "out.safetensors", "--tokens", "--layers", "0,2"],
        &["-o", "out.csv", "--batch", "64"],
    ] {
        let args = [&["embed", "in", "in/19.png", "absent", "--batch", "3"][..], more].concat();
        let args: Vec<&str> = if more.contains(&"--batch") {
            [&["embed", "in"][..], more].concat()
        } else {
            args
        };
        same_as_one_process(folder.path(), &[2, 3], &args, Some(more[1]));
    }
}

#[test]
fn labels_have_the_bytes_of_one_process() {
    let folder = images(13);
    fs::write(folder.path().join("in/00.png"), "broken").unwrap();
    for more in [&["--json", "--logits"][..], &["--format", "csv"], &["--top", "2"]] {
        let args = [&["classify", "in", "--batch", "2"][..], more].concat();
        same_as_one_process(folder.path(), &[2, 3], &args, None);
    }
    // A model from files, more ranks than batches, and empty lists of images.
    let model = at("tests/golden/timm_test_vit");
    let model = model.to_str().unwrap();
    let args = [
        "classify",
        "in/01.png",
        "in/02.png",
        "no*",
        "--json",
        "--model",
        model,
    ];
    same_as_one_process(folder.path(), &[3], &args, None);
}

#[test]
fn accuracy_is_that_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    same_as_one_process(folder.path(), &[2], &["eval", "--json"], None);
}

#[test]
fn a_list_on_standard_input_reaches_all_ranks() {
    let folder = images(7);
    let args = ["classify", "--files-from", "-", "--json", "--batch", "2"];
    let list: String = (0..7).rev().map(|index| format!("in/{index:02}.png\n")).collect();
    let give = |mut command: Command| {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(list.as_bytes()).unwrap();
        child
    };
    let mut alone = on_cpu();
    alone.args(args).current_dir(folder.path()).stdout(Stdio::piped());
    let expected = give(alone).wait_with_output().unwrap();
    let launcher = Launcher::new(2, folder.path());
    let other = launcher.start(1, args);
    let output = give(launcher.command(0, args)).wait_with_output().unwrap();
    assert_eq!(stdout(&output), stdout(&expected), "{}", stderr(&output));
    assert_eq!(stdout(&output).lines().count(), 7);
    let other = other.wait_with_output().unwrap();
    assert_eq!((other.status.code(), stdout(&other)), (Some(0), ""));
    // Several processes do not accept an image on standard input.
    for output in Launcher::new(2, folder.path()).run(&["classify", "-"]) {
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("-: several processes cannot share an image on standard input"));
    }
}

#[test]
fn a_launcher_of_one_process_changes_nothing_and_any_can_be_ignored() {
    let folder = images(3);
    let expected = one_process(folder.path(), &["classify", "in", "--json"]);
    let outputs = Launcher::new(1, folder.path()).run(&["classify", "in", "--json"]);
    assert_eq!(stdout(&outputs[0]), stdout(&expected));
    // The other rank never starts.
    let launcher = Launcher::new(2, folder.path());
    let off = launcher.start(1, ["classify", "in", "--json", "--distributed", "off"]);
    assert_eq!(stdout(&off.wait_with_output().unwrap()), stdout(&expected));
    let bench = [
        &QUICK[..],
        &[
            "--parallel",
            "tensor",
            "--device",
            "cpu",
            "--json",
            "--distributed",
            "off",
        ],
    ];
    let off = launcher.start(1, bench.concat()).wait_with_output().unwrap();
    assert_eq!(off.status.code(), Some(0), "{}", stderr(&off));
    assert_eq!(rows(&off).len(), 1, "{}", stdout(&off));
    let mut stray = launcher.command(1, ["classify", "in"]);
    let output = stray.env_remove("WORLD_SIZE").output().unwrap();
    assert_eq!(
        stderr(&output),
        "error: launcher: RANK is set, and WORLD_SIZE is not; --distributed off ignores the launcher\n"
    );
}

#[test]
fn ranks_that_differ_are_named_at_all_ranks() {
    let folder = images(4);
    let images = |rank| {
        ["in/00.png", "in/01.png", "in/02.png"]
            .into_iter()
            .take(3 - rank % 2)
    };
    let args = |rank: usize| {
        let batch = if rank == 2 { "8" } else { "9" };
        ["embed", "-o", "out.npy", "--batch", batch]
            .into_iter()
            .chain(images(rank))
            .collect()
    };
    for (rank, output) in Launcher::new(3, folder.path()).run_each(args).iter().enumerate() {
        assert_eq!(output.status.code(), Some(1));
        let text = stderr(output);
        let prefix = match rank {
            0 => String::from("error: "),
            _ => format!("error: rank {rank} of 3: "),
        };
        assert!(
            text.starts_with(&format!("{prefix}the processes differ in images: 3 (list ")),
            "{text}"
        );
        assert!(text.contains(") at ranks 0, 2, 2 (list "), "{text}");
        assert!(
            text.contains(") at rank 1; --batch: 9 at ranks 0, 1, 8 at rank 2; start all"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    assert!(!folder.path().join("out.npy").exists());
}

#[test]
fn a_rank_that_cannot_begin_ends_all() {
    let folder = images(4);
    let args = |rank| match rank {
        1 => vec!["embed", "in", "-o", "out.npy", "--model", "absent"],
        _ => vec!["embed", "in", "-o", "out.npy"],
    };
    let outputs = Launcher::new(3, folder.path()).run_each(args);
    let texts: Vec<&str> = outputs.iter().map(stderr).collect();
    for (text, begin) in texts.iter().zip([
        "error: rank 1 of 3: absent: ",
        "error: rank 1 of 3: absent: ",
        "error: rank 2 of 3: rank 1 of 3: absent: ",
    ]) {
        assert!(text.starts_with(begin), "{text}");
    }
    assert!(outputs.iter().all(|output| output.status.code() == Some(1)));
    assert!(!folder.path().join("out.npy").exists());
}

#[test]
fn a_rank_that_never_comes_is_named() {
    let folder = images(1);
    let launcher = Launcher::new(2, folder.path());
    let root = launcher.start(0, ["classify", "in", "--distributed-timeout", "1"]);
    let output = root.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("rank 1 did not come within 1 s"),
        "{}",
        stderr(&output)
    );
}

/// Starts two ranks with more images than they will run, and waits until rank 0 writes.
fn ranks_at_work(folder: &Path) -> [Child; 2] {
    let list: String = "in/00.png\nin/01.png\n".repeat(100_000);
    fs::write(folder.join("list"), list).unwrap();
    fs::create_dir(folder.join("out")).unwrap();
    let launcher = Launcher::new(2, folder);
    let args = [
        "embed",
        "--files-from",
        "list",
        "-o",
        "out/out.jsonl",
        "--threads",
        "1",
    ];
    let ranks = [0, 1].map(|rank| launcher.start(rank, args));
    let begun = Instant::now();
    let written = || {
        let files = fs::read_dir(folder.join("out")).unwrap();
        files
            .filter_map(|file| Some(file.ok()?.metadata().ok()?.len()))
            .sum::<u64>()
    };
    while written() < 100_000 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is written");
        thread::sleep(Duration::from_millis(10));
    }
    ranks
}

#[test]
fn a_killed_rank_is_named_and_leaves_partial_results() {
    let folder = images(2);
    let [root, mut other] = ranks_at_work(folder.path());
    other.kill().unwrap();
    let output = ends_soon(root);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("rank 1 has ended"), "{text}");
    // The first note is about the model.
    let lines: Vec<&str> = text.lines().collect();
    let [_, note, error] = lines[..] else {
        panic!("{text}")
    };
    assert!(
        note.starts_with("note: out/out.jsonl.partial: contains the results of "),
        "{text}"
    );
    assert!(error.starts_with("error: rank 0 of 2: "), "{text}");
    let left = fs::read_dir(folder.path().join("out")).unwrap();
    let left: Vec<_> = left.map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, ["out.jsonl.partial"]);
    other.wait().unwrap();
}

#[test]
fn without_rank_0_the_others_end() {
    let folder = images(2);
    let [mut root, other] = ranks_at_work(folder.path());
    root.kill().unwrap();
    let output = ends_soon(other);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.starts_with("error: rank 1 of 2: "), "{text}");
    assert!(text.contains("rank 0 has ended"), "{text}");
    root.wait().unwrap();
}

#[test]
fn ranks_end_quietly_when_nobody_reads_the_results() {
    let folder = images(2);
    fs::write(
        folder.path().join("list"),
        "in/00.png\nin/01.png\n".repeat(100_000),
    )
    .unwrap();
    let launcher = Launcher::new(2, folder.path());
    let args = ["classify", "-q", "--files-from", "list", "--json"];
    let mut root = launcher.start(0, args);
    let other = launcher.start(1, args);
    drop(root.stdout.take());
    for rank in [root, other] {
        let output = ends_soon(rank);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    }
}

/// Two network namespaces act as two hosts.
#[test]
#[cfg(target_os = "linux")]
fn ranks_of_two_hosts_give_the_bytes_of_one_process() {
    const SET_UP: &str = "mount -t tmpfs tmpfs /run && mkdir -p /run/netns && ip netns add a && ip netns add b && \
        ip link add va netns a type veth peer name vb netns b && \
        ip -n a addr add 10.9.0.1/24 dev va && ip -n b addr add 10.9.0.2/24 dev vb && \
        ip -n a link set va up && ip -n b link set vb up";
    let permitted = Command::new("unshare")
        .args(["-rnm", "sh", "-c", SET_UP])
        .output();
    if !permitted.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: network namespaces are not permitted here, or iproute2 is missing");
        return;
    }
    let folder = images(11);
    let rank = |n: usize, namespace: &str| {
        format!("RANK={n} LOCAL_RANK=0 ip netns exec {namespace} \"$0\" \"$@\" &")
    };
    let script = format!("{SET_UP} && {{ {} {} wait; }}", rank(0, "a"), rank(1, "b"));
    let args = ["embed", "-q", "in", "-o", "out.npy", "--batch", "2"];
    let expected = one_process(folder.path(), &args);
    assert_eq!(expected.status.code(), Some(0));
    let expected = fs::read(folder.path().join("out.npy")).unwrap();
    fs::remove_file(folder.path().join("out.npy")).unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["-rnm", "sh", "-c", &script, env!("CARGO_BIN_EXE_hipvit")])
        .args(args)
        .current_dir(folder.path())
        .env("WORLD_SIZE", "2")
        .env("MASTER_ADDR", "10.9.0.1")
        .env("MASTER_PORT", "29500");
    let output = command.output().unwrap();
    assert_eq!(stderr(&output), "");
    assert!(fs::read(folder.path().join("out.npy")).unwrap() == expected);
}
