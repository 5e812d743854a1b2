//! `--resume`: an interrupted run gives the bytes of an uninterrupted one.

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::at;
use crate::support::launcher::Launcher;
use crate::support::program::stderr;

/// Number of images at the beginning and at the end of the list.
const GOOD: usize = 20;

/// Number of missing images between them. Their errors fill a pipe that is not read, so the run waits there.
const MISSING: usize = 1500;

/// A folder with images and a list of them.
fn images() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("in")).unwrap();
    let mut list = Vec::new();
    for index in 0..2 * GOOD {
        let name = format!("in/{index:02}.png");
        fs::copy(
            at(format!("assets/samples/{}.png", index % 10)),
            folder.path().join(&name),
        )
        .unwrap();
        list.push(name);
    }
    let missing = (0..MISSING).map(|index| format!("missing/{index:0150}"));
    list.splice(GOOD..GOOD, missing);
    fs::write(folder.path().join("list"), list.join("\n")).unwrap();
    folder
}

fn run(folder: &Path, args: &[&str], more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hipvit"));
    command
        .args(args)
        .args(["--files-from", "list", "--batch", "3", "--threads", "1"])
        .args(more)
        .current_dir(folder)
        .stdin(Stdio::null());
    command
}

/// Starts a run into `file` and ends it by a signal once it has results.
fn interrupt(folder: &Path, args: &[&str], file: &str, signal: &str) -> Output {
    let mut command = run(folder, args, &["-o", file]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let partial = folder.join(format!("{file}.partial"));
    wait_until(|| partial.exists());
    // The first results arrive, then the run waits for a reader of the errors.
    thread::sleep(Duration::from_millis(1500));
    if signal == "-KILL" {
        // It goes on for a while, and writes what it has.
        let mut errors = vec![0; 30_000];
        child.stderr.as_mut().unwrap().read_exact(&mut errors).unwrap();
        wait_until(|| fs::metadata(&partial).unwrap().len() > 5_000);
    }
    let killed = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(killed.unwrap().success());
    child.wait_with_output().unwrap()
}

fn wait_until(reached: impl Fn() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the run has no results"
        );
        thread::sleep(Duration::from_millis(10));
    }
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut files: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    files
}

#[test]
fn an_interrupted_run_is_resumed_in_every_form() {
    let folder = images();
    let folder = folder.path();
    for (signal, number) in [("-INT", 2), ("-TERM", 15), ("-KILL", 9)] {
        let output = interrupt(folder, &["embed"], "e.csv", signal);
        assert_eq!(output.status.signal(), Some(number));
        assert_eq!(files(folder), ["e.csv.partial", "in", "list"]);
        if signal != "-KILL" {
            let text = stderr(&output);
            let last = text
                .lines()
                .find(|line| line.starts_with("interrupted: "))
                .unwrap();
            assert!(last.contains("e.csv.partial: contains the results of "), "{last}");
            assert!(last.contains(" of 1540 images. To continue: "), "{last}");
            let command = "hipvit embed --resume --files-from list --batch 3 --threads 1 -o e.csv";
            assert!(last.ends_with(command), "{last}");
        }
        let partial = folder.join("kept");
        fs::rename(folder.join("e.csv.partial"), &partial).unwrap();
        let forms = if signal == "-INT" {
            &["r.csv", "r.jsonl", "r.npy", "r.safetensors", "r.parquet"][..]
        } else {
            &["r.csv"]
        };
        for form in forms {
            let whole = run(folder, &["embed"], &["-o", form]).output().unwrap();
            assert_eq!(whole.status.code(), Some(1));
            let names = folder.join("r.names.txt");
            let read = || (fs::read(folder.join(form)).unwrap(), fs::read(&names).ok());
            let expected = read();
            fs::remove_file(folder.join(form)).unwrap();
            // Results do not depend on the form.
            let here = folder.join(format!("{form}.partial"));
            fs::copy(&partial, &here).unwrap();
            let resumed = run(folder, &["embed"], &["-o", form, "--resume"])
                .output()
                .unwrap();
            assert_eq!(resumed.status.code(), Some(1), "{}", stderr(&resumed));
            assert!(read() == expected, "{form}");
            assert!(!here.exists());
            let (note, errors) = stderr(&resumed).split_once('\n').unwrap();
            assert!(note.ends_with(" of 1540 images are finished"), "{note}");
            let finished: usize = note.split(' ').nth(2).unwrap().parse().unwrap();
            assert!(
                finished > 0 && finished < 1540 && finished.is_multiple_of(3),
                "{note}"
            );
            // The errors of the finished images too.
            assert_eq!(errors, stderr(&whole), "{form}");
            for sidecar in [&names, &folder.join("r.index.json")] {
                if sidecar.exists() {
                    fs::remove_file(sidecar).unwrap();
                }
            }
            fs::remove_file(folder.join(form)).unwrap();
        }
        fs::remove_file(&partial).unwrap();
    }
}

#[test]
fn classify_and_several_processes_resume_too() {
    let folder = images();
    let folder = folder.path();
    let args = ["classify", "--top", "2"];
    let whole = run(folder, &args, &["-o", "whole.txt"]).output().unwrap();
    assert_eq!(whole.status.code(), Some(1));
    let expected = fs::read(folder.join("whole.txt")).unwrap();
    interrupt(folder, &args, "r.txt", "-TERM");
    let kept = folder.join("r.txt.partial");
    fs::copy(&kept, folder.join("p.txt.partial")).unwrap();
    let resumed = run(folder, &args, &["-o", "r.txt", "--resume"]).output().unwrap();
    assert_eq!(resumed.status.code(), Some(1), "{}", stderr(&resumed));
    assert!(fs::read(folder.join("r.txt")).unwrap() == expected);
    let args = [
        "classify",
        "--top",
        "2",
        "--files-from",
        "list",
        "--batch",
        "3",
        "--threads",
        "1",
        "-o",
        "p.txt",
        "--resume",
    ];
    let ranks = Launcher::new(2, folder).run(&args);
    assert_eq!(ranks[0].status.code(), Some(1), "{}", stderr(&ranks[0]));
    assert!(fs::read(folder.join("p.txt")).unwrap() == expected);
    assert_eq!(files(folder), ["in", "list", "p.txt", "r.txt", "whole.txt"]);
}

#[test]
fn results_of_another_run_are_neither_used_nor_lost() {
    let folder = images();
    let folder = folder.path();
    interrupt(folder, &["embed"], "e.npy", "-INT");
    let refused = |more: &[&str], code: i32, reason: &str| {
        let output = run(folder, &["embed"], &[&["-o", "e.npy"], more].concat())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(stderr(&output).contains(reason), "{reason}: {}", stderr(&output));
        assert!(folder.join("e.npy.partial").exists());
        assert!(!folder.join("e.npy").exists());
    };
    refused(
        &[],
        2,
        "e.npy.partial: contains results of an interrupted run. Add --resume to continue it, or remove the file",
    );
    let resume = ["--resume"];
    refused(
        &[&resume[..], &["--exif"]].concat(),
        1,
        "belongs to a different run: --exif was off, and is on",
    );
    let model = at("tests/golden/timm_test_vit");
    let model = model.to_str().unwrap();
    refused(
        &["--resume", "--model", model],
        1,
        "belongs to a different run: model was the embedded one, and is ",
    );
    // An image of another name comes first.
    refused(
        &["--resume", "in/39.png"],
        1,
        "it has in/00.png where this run has in/39.png",
    );
    let image = folder.join("in/04.png");
    let bytes = fs::read(&image).unwrap();
    fs::copy(at("assets/samples/0.png"), &image).unwrap();
    refused(
        &resume,
        1,
        "in/04.png has changed since the results were computed. Remove the file to start again",
    );
    drop(bytes);
    // Without the file, all begins again.
    fs::remove_file(folder.join("e.npy.partial")).unwrap();
    let output = run(folder, &["embed"], &["-o", "e.npy", "--resume"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output)
            .starts_with("note: e.npy.partial: there is no such file; the run starts with the first image\n")
    );
    assert!(folder.join("e.npy").exists());
    // An empty file has no results.
    fs::write(folder.join("f.npy.partial"), "").unwrap();
    let output = run(folder, &["embed"], &["-o", "f.npy", "--resume"])
        .output()
        .unwrap();
    assert!(
        stderr(&output)
            .starts_with("note: f.npy.partial: has no results; the run starts with the first image\n")
    );
}

#[test]
fn two_runs_do_not_write_one_file() {
    let folder = images();
    let folder = folder.path();
    let mut first = run(folder, &["embed"], &["-o", "e.csv"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until(|| fs::metadata(folder.join("e.csv.partial")).is_ok_and(|file| file.len() > 0));
    for more in [&["-o", "e.csv"][..], &["-o", "e.csv", "--resume"]] {
        let second = run(folder, &["embed"], more).output().unwrap();
        assert_eq!(second.status.code(), Some(1));
        assert!(
            stderr(&second).contains("another process is writing this file"),
            "{}",
            stderr(&second)
        );
    }
    first.kill().unwrap();
    first.wait().unwrap();
}

#[test]
fn resume_needs_a_file() {
    let folder = images();
    for more in [
        &["--resume"][..],
        &["--resume", "-o", "-"],
        &["--resume", "-o", "/dev/null", "--json"],
    ] {
        let output = run(folder.path(), &["embed"], more).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{more:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("--output"), "{}", stderr(&output));
    }
}
