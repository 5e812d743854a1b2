//! `-o FILE`: the written file, the time of writing, and incomplete results.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::at;
use crate::support::program::{hipvit, stderr, stdout};

/// Classifies the samples into `file`.
fn classify(file: &Path) -> Output {
    let samples = at("assets/samples");
    hipvit([
        OsStr::new("classify"),
        samples.as_os_str(),
        "-o".as_ref(),
        file.as_os_str(),
    ])
}

fn rows(file: &Path) -> usize {
    fs::read_to_string(file).unwrap().lines().count()
}

/// The header and five labels of each sample.
const ROWS: usize = 51;

#[test]
fn the_case_of_a_symbolic_link() {
    let output = Command::new("bash")
        .arg(at("tests/cases/15_output_in_place/run.sh"))
        .env("HIPVIT", env!("CARGO_BIN_EXE_hipvit"))
        .output()
        .unwrap();
    assert_eq!(
        stdout(&output),
        "symlink: link is still a link: yes, its target has the results: 6\n",
        "{}",
        stderr(&output)
    );
}

#[test]
fn links_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("data")).unwrap();
    fs::write(path("data/old.csv"), "old").unwrap();
    for (link, file) in [("a.csv", "data/old.csv"), ("b.csv", "data/new.csv")] {
        symlink(file, path(link)).unwrap();
        let output = classify(&path(link));
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(path(link).is_symlink());
        assert_eq!(rows(&path(file)), ROWS);
    }
    // Nothing else is left there.
    assert_eq!(fs::read_dir(path("data")).unwrap().count(), 2);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn permissions_stay_and_new_files_have_those_of_the_umask() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old.csv"), folder.path().join("new.csv"));
    fs::write(&old, "old").unwrap();
    fs::set_permissions(&old, Permissions::from_mode(0o604)).unwrap();
    for (file, mode) in [(&old, 0o604), (&new, 0o640)] {
        let output = Command::new("sh")
            .args(["-c", "umask 027 && exec \"$0\" classify -o \"$1\""])
            .arg(env!("CARGO_BIN_EXE_hipvit"))
            .arg(file)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(rows(file), ROWS);
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, mode);
    }
}

#[test]
fn both_names_of_a_file_have_the_results() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one.csv"), folder.path().join("other.csv"));
    fs::write(&one, "old").unwrap();
    fs::hard_link(&one, &other).unwrap();
    assert_eq!(classify(&one).status.code(), Some(0));
    assert_eq!((rows(&one), rows(&other)), (ROWS, ROWS));
    assert_eq!(fs::metadata(&one).unwrap().nlink(), 2);
}

/// The model does not exist either, but the output file is checked first.
#[test]
fn what_cannot_be_written_is_refused_before_the_model_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("folder.csv")).unwrap();
    fs::write(path("file"), "").unwrap();
    symlink("gone/r.csv", path("dangling.csv")).unwrap();
    let mut refused = vec![
        ("folder.csv", "is a directory. Name a file in it"),
        ("missing/r.csv", "/missing does not exist. Create it first"),
        ("dangling.csv", "/gone does not exist. Create it first"),
        ("file/r.csv", "Not a directory"),
    ];
    fs::write(path("read_only.csv"), "old").unwrap();
    fs::set_permissions(path("read_only.csv"), Permissions::from_mode(0o444)).unwrap();
    // The superuser may write it.
    if fs::OpenOptions::new()
        .write(true)
        .open(path("read_only.csv"))
        .is_err()
    {
        refused.push((
            "read_only.csv",
            "the file exists and cannot be written: Permission denied",
        ));
    }
    for (name, reason) in refused {
        let output = hipvit([
            OsStr::new("classify"),
            at("assets/samples").as_os_str(),
            "-m".as_ref(),
            "no-such-model".as_ref(),
            "-o".as_ref(),
            path(name).as_os_str(),
        ]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        let text = stderr(&output);
        assert!(
            text.contains(path(name).to_str().unwrap()) && text.contains(reason),
            "{name}: {text}"
        );
    }
    assert_eq!(fs::read_to_string(path("read_only.csv")).unwrap(), "old");
    // Other files that commands write behave alike.
    let [page, plot] = ["missing/page.html", "missing/plot.svg"].map(path);
    let sample = at("assets/samples/3.png");
    for args in [
        vec![
            OsStr::new("trace"),
            "--pixel=1,1".as_ref(),
            sample.as_os_str(),
            "--html".as_ref(),
            page.as_os_str(),
        ],
        vec![OsStr::new("advise"), "-o".as_ref(), plot.as_os_str()],
        vec![OsStr::new("inspect"), "--plot".as_ref(), plot.as_os_str()],
    ] {
        let output = hipvit(args.into_iter().chain(["-m".as_ref(), "no-such-model".as_ref()]));
        assert!(
            stderr(&output).contains("does not exist. Create it first"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn descriptors_get_the_results_behind_what_they_have() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.csv");
    for (target, redirection) in [("/dev/stdout", ">"), ("/dev/fd/3", "3>"), ("link.csv", ">")] {
        let link = folder.path().join("link.csv");
        let _ = fs::remove_file(&link);
        symlink("/dev/stdout", &link).unwrap();
        let script = format!(
            "{{ echo before >&{}; \"$0\" classify --format csv -o {target}; }} {redirection} all.csv",
            if redirection == "3>" { 3 } else { 1 }
        );
        let output = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_hipvit")])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("before\nimage,"), "{target}: {text}");
        assert_eq!(rows(&file), ROWS + 1, "{target}");
    }
}

/// Runs a script in a new mount namespace; `None` if that is not permitted. `$0` is hipvit.
fn with_mounts(folder: &Path, set_up: &str, script: &str) -> Option<Output> {
    let run = |script: &str| {
        Command::new("unshare")
            .args(["-rm", "sh", "-c", script, env!("CARGO_BIN_EXE_hipvit")])
            .current_dir(folder)
            .env("TMPDIR", folder.join("tmp"))
            .output()
    };
    let permitted = run(set_up).is_ok_and(|output| output.status.success());
    if !permitted {
        eprintln!("skipped: mounts are not permitted here");
        return None;
    }
    run(&format!("{set_up} && {script}")).ok()
}

/// The mount equals that of `docker run -v ./real.csv:/mounted.csv`.
#[test]
fn a_mounted_file_is_written_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("tmp")).unwrap();
    for name in ["real.csv", "mounted.csv"] {
        fs::write(path(name), "old").unwrap();
    }
    let set_up = "mount --bind real.csv mounted.csv";
    let Some(output) = with_mounts(folder.path(), set_up, "\"$0\" classify -o mounted.csv") else {
        return;
    };
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(rows(&path("real.csv")), ROWS);
    assert_eq!(fs::read_to_string(path("mounted.csv")).unwrap(), "old");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn a_file_in_a_read_only_folder_is_written_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["tmp", "out"] {
        fs::create_dir(path(name)).unwrap();
    }
    fs::write(path("real.csv"), "old").unwrap();
    fs::write(path("out/r.csv"), "old").unwrap();
    let set_up = "mount --bind out out && mount --bind real.csv out/r.csv && mount -o remount,ro,bind out";
    let script = "\"$0\" classify -o out/r.csv && ! \"$0\" classify -o out/new.csv";
    let Some(output) = with_mounts(folder.path(), set_up, script) else {
        return;
    };
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(rows(&path("real.csv")), ROWS);
    let text = stderr(&output);
    assert!(
        text.contains("out/new.csv: cannot create a file in out: Read-only file system"),
        "{text}"
    );
}

#[test]
fn results_that_do_not_fit_on_the_disk_are_kept_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["tmp", "full"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    let set_up = "mount -t tmpfs -o size=4k tmpfs full";
    let script = "\"$0\" classify --logits --batch 16 -o full/r.jsonl";
    let Some(output) = with_mounts(folder.path(), set_up, script) else {
        return;
    };
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.starts_with("error: full/r.jsonl: No space left on device"),
        "{text}"
    );
    let (_, kept) = text
        .trim_end()
        .split_once("The complete results are in ")
        .unwrap();
    assert_eq!(rows(Path::new(kept)), 10);
    assert_eq!(fs::read_dir(folder.path().join("tmp")).unwrap().count(), 1);
}

#[test]
fn the_rows_of_an_array_are_named_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("in")).unwrap();
    let names = ["a \"b\".png", "c\\d\n.png", "é.png"];
    for name in names {
        fs::copy(at("assets/samples/3.png"), path("in").join(name)).unwrap();
    }
    fs::write(path("in/b.png"), "damaged").unwrap();
    for command in ["embed", "preprocess"] {
        let file = path(&format!("{command}.npy"));
        let output = hipvit([
            OsStr::new(command),
            path("in").as_os_str(),
            "-o".as_ref(),
            file.as_os_str(),
        ]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let text = stderr(&output);
        assert!(
            text.ends_with("note: 1 of 4 images failed and are left out\n"),
            "{text}"
        );
        let lines = fs::read_to_string(path(&format!("{command}.names.txt"))).unwrap();
        // A line is the inside of a JSON string.
        let found: Vec<String> = lines
            .lines()
            .map(|line| serde_json::from_str(&format!("\"{line}\"")).unwrap())
            .collect();
        let expected: Vec<String> = names
            .iter()
            .map(|name| path("in").join(name).to_str().unwrap().to_owned())
            .collect();
        assert_eq!(found, expected);
        let array = fs::read(&file).unwrap();
        let header = String::from_utf8_lossy(&array[..128]).into_owned();
        assert!(header.contains("'shape': (3, "), "{header}");
    }
    // Other forms, and standard output, have no such file.
    let entries = || fs::read_dir(folder.path()).unwrap().count();
    let before = entries();
    let images = path("in");
    let args = [OsStr::new("embed"), images.as_os_str()];
    hipvit(args.iter().copied().chain(["--format".as_ref(), "npy".as_ref()]));
    hipvit(args.iter().copied().chain([
        "--format".as_ref(),
        "npy".as_ref(),
        "-o".as_ref(),
        "/dev/null".as_ref(),
    ]));
    assert_eq!(entries(), before);
}

#[test]
fn an_output_does_not_replace_an_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (image, list) = (path("a.png"), path("a.names.txt"));
    fs::copy(at("assets/samples/3.png"), &image).unwrap();
    fs::write(&list, image.to_str().unwrap()).unwrap();
    let before = [&image, &list].map(|file| fs::read(file).unwrap());
    symlink("a.png", path("link.csv")).unwrap();
    for (command, format, name) in [
        ("classify", "csv", "a.png"),
        ("classify", "csv", "link.csv"),
        ("classify", "csv", "a.names.txt"),
        // Its rows are named in a.names.txt.
        ("embed", "npy", "a.npy"),
        ("preprocess", "npy", "a.npy"),
    ] {
        let output = hipvit([
            OsStr::new(command),
            "--files-from".as_ref(),
            list.as_os_str(),
            "--format".as_ref(),
            format.as_ref(),
            "-o".as_ref(),
            path(name).as_os_str(),
        ]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{command} {name}: {text}");
        assert!(text.contains(": this is an input, which the results"), "{text}");
    }
    assert_eq!([&image, &list].map(|file| fs::read(file).unwrap()), before);
    assert!(!path("a.npy").exists());
}

/// File systems without unnamed files, such as overlays, show the results during a run.
#[test]
fn an_interrupted_run_leaves_no_temporary_file() {
    for (signal, number) in [("-INT", 2), ("-TERM", 15)] {
        for command in ["classify", "embed"] {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("old.csv"), "old").unwrap();
            // The image comes by standard input, which stays open.
            let mut child = Command::new(env!("CARGO_BIN_EXE_hipvit"))
                .args([command, "-", "-o", "old.csv", "--threads", "1"])
                .current_dir(folder.path())
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            // Waiting for the child would close it.
            let _input = child.stdin.take();
            // Until the results' file is there, named or not.
            let begun = Instant::now();
            let opened = || {
                let open = fs::read_dir(format!("/proc/{}/fd", child.id()))
                    .unwrap()
                    .flatten();
                let links = open.filter_map(|entry| fs::read_link(entry.path()).ok());
                links.filter(|file| file.starts_with(folder.path())).count() > 0
            };
            while !opened() && begun.elapsed() < Duration::from_secs(30) {
                thread::sleep(Duration::from_millis(10));
            }
            assert!(child.try_wait().unwrap().is_none(), "{command} has ended");
            let killed = Command::new("kill")
                .args([signal, &child.id().to_string()])
                .status();
            assert!(killed.unwrap().success());
            assert_eq!(child.wait().unwrap().signal(), Some(number));
            let left: Vec<_> = fs::read_dir(folder.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            assert_eq!(left, ["old.csv"], "{command} {signal}");
            assert_eq!(fs::read(folder.path().join("old.csv")).unwrap(), b"old");
        }
    }
}

/// Modes of all files below a folder, by name.
fn modes(folder: &Path) -> Vec<(String, u32)> {
    let mut modes: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, entry.metadata().unwrap().mode() & 0o777)
        })
        .collect();
    modes.sort();
    modes
}

#[test]
fn what_others_read_has_the_permissions_of_the_umask() {
    let folder = tempfile::tempdir().unwrap();
    for (umask, mode) in [("027", 0o640), ("022", 0o644), ("077", 0o600)] {
        let model = folder.path().join(umask);
        let script = "umask \"$1\" && \"$0\" quantize -o \"$2\"";
        let output = Command::new("sh")
            .args(["-c", script, env!("CARGO_BIN_EXE_hipvit"), umask])
            .arg(&model)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let written = modes(&model);
        assert!(
            written.iter().any(|(name, _)| name == "model.safetensors"),
            "{written:?}"
        );
        assert!(
            written.iter().all(|(_, found)| *found == mode),
            "{umask}: {written:?}"
        );
    }
}

/// A file that exceeds `ulimit -f` is an error of the write, and not the end by a signal.
#[test]
fn a_file_beyond_the_limit_of_its_size_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("sh")
        .args(["-c", r#"ulimit -f 0; exec "$0" embed "$1" -o e.npy"#])
        .arg(env!("CARGO_BIN_EXE_hipvit"))
        .arg(at("assets/samples/7.png"))
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("File too large"), "{}", stderr(&output));
}
