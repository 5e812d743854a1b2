//! `hipvit pull` with a hub on loopback.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::at;
use crate::command_line::{stderr, stdout};
use crate::hub_server::{COMMIT, Hub, Settings, files, sha256};

const MODEL: &str = "someone/vit-tiny";

/// Creates a hub with a golden model and files that hipvit does not read.
fn hub(golden: &str) -> Hub {
    let mut settings = Settings::default();
    let mut model = files(&at("tests/golden").join(golden));
    model.insert("pytorch_model.bin".into(), vec![1; 9000]);
    model.insert("onnx/model.onnx".into(), vec![2; 9000]);
    settings.repositories.insert(MODEL.into(), model);
    Hub::start(settings)
}

fn run(hub: &str, home: &Path, args: &[&str]) -> Output {
    variables(hub, home, args, &[])
}

fn variables(hub: &str, home: &Path, args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hipvit"));
    for name in [
        "HF_HUB_CACHE",
        "HF_TOKEN",
        "HF_HUB_OFFLINE",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
    ] {
        command.env_remove(name);
    }
    command
        .args(args)
        .current_dir(home)
        .env("HF_HOME", home)
        .env("HF_ENDPOINT", hub)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn pull(hub: &Hub, home: &Path) -> Output {
    run(&hub.endpoint, home, &["pull", MODEL])
}

fn refusal(output: &Output) -> &str {
    assert_eq!(output.status.code(), Some(1), "{}", stdout(output));
    assert_eq!(stdout(output), "");
    stderr(output)
}

#[test]
fn a_pulled_model_is_in_the_cache_as_the_hubs_library_has_it_and_runs() {
    let (hub, home) = (hub("hf_vit"), tempfile::tempdir().unwrap());
    let output = pull(&hub, home.path());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let folder = home.path().join("hub/models--someone--vit-tiny");
    let snapshot = folder.join("snapshots").join(COMMIT);
    assert_eq!(stdout(&output), format!("{}\n", snapshot.display()));
    assert_eq!(fs::read_to_string(folder.join("refs/main")).unwrap(), COMMIT);
    let model = files(&at("tests/golden/hf_vit"));
    let mut names: Vec<_> = fs::read_dir(&snapshot)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["config.json", "model.safetensors", "preprocessor_config.json"]
    );
    for name in &names {
        let blob = fs::read_link(snapshot.join(name)).unwrap();
        assert_eq!(blob.parent().unwrap(), Path::new("../../blobs"));
        assert_eq!(fs::read(snapshot.join(blob)).unwrap(), model[name]);
    }
    assert_eq!(
        fs::read_link(snapshot.join("model.safetensors"))
            .unwrap()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap(),
        sha256(&model["model.safetensors"])
    );
    // Nothing but the metadata is asked for again.
    hub.requests();
    let again = pull(&hub, home.path());
    assert!(
        stderr(&again).contains("someone/vit-tiny: already in the cache"),
        "{}",
        stderr(&again)
    );
    assert!(
        hub.requests()
            .iter()
            .all(|request| !request.starts_with("GET /someone"))
    );
    // And the model runs by its name, without the hub.
    let image = at("tests/golden/images/small.png");
    let args = [
        "classify",
        image.to_str().unwrap(),
        "-m",
        MODEL,
        "--device",
        "cpu",
        "--json",
    ];
    let output = run("http://127.0.0.1:9", home.path(), &args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn shards_and_revisions_are_followed() {
    let (hub, home) = (hub("hf_vit_sharded"), tempfile::tempdir().unwrap());
    let output = run(
        &hub.endpoint,
        home.path(),
        &["pull", "someone/vit-tiny@refs/pr/1", "-q"],
    );
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    let folder = home.path().join("hub/models--someone--vit-tiny");
    assert_eq!(fs::read_to_string(folder.join("refs/refs/pr/1")).unwrap(), COMMIT);
    let inspected = run(
        &hub.endpoint,
        home.path(),
        &["inspect", "someone/vit-tiny@refs/pr/1"],
    );
    assert_eq!(inspected.status.code(), Some(0), "{}", stderr(&inspected));
}

#[test]
fn a_broken_connection_is_continued_in_the_same_run_and_in_the_next() {
    let (hub, home) = (hub("hf_vit"), tempfile::tempdir().unwrap());
    let weights = files(&at("tests/golden/hf_vit"))["model.safetensors"].clone();
    let blobs = home.path().join("hub/models--someone--vit-tiny/blobs");
    // What an earlier run left.
    fs::create_dir_all(&blobs).unwrap();
    let partial = blobs.join(format!("{}.incomplete", sha256(&weights)));
    fs::write(&partial, &weights[..1000]).unwrap();
    hub.set(|settings| settings.cut_after = Some(weights.len() / 3));
    let output = pull(&hub, home.path());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(fs::read(blobs.join(sha256(&weights))).unwrap(), weights);
    assert!(!partial.exists());
    let ranges: Vec<String> = hub
        .requests()
        .into_iter()
        .filter(|line| line.starts_with("GET /someone/vit-tiny/model"))
        .collect();
    assert_eq!(ranges[0], "GET /someone/vit-tiny/model.safetensors bytes=1000-");
    assert!(ranges.len() >= 3, "{ranges:?}");
}

#[test]
fn a_server_that_ignores_ranges_sends_the_whole_file_again() {
    let (hub, home) = (hub("hf_vit"), tempfile::tempdir().unwrap());
    let weights = files(&at("tests/golden/hf_vit"))["model.safetensors"].clone();
    let blobs = home.path().join("hub/models--someone--vit-tiny/blobs");
    fs::create_dir_all(&blobs).unwrap();
    fs::write(
        blobs.join(format!("{}.incomplete", sha256(&weights))),
        b"something else",
    )
    .unwrap();
    hub.set(|settings| settings.ignores_ranges = true);
    let output = pull(&hub, home.path());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(fs::read(blobs.join(sha256(&weights))).unwrap(), weights);
}

#[test]
fn a_range_that_was_not_asked_for_restarts_the_file() {
    let (hub, home) = (hub("hf_vit"), tempfile::tempdir().unwrap());
    let weights = files(&at("tests/golden/hf_vit"))["model.safetensors"].clone();
    let blobs = home.path().join("hub/models--someone--vit-tiny/blobs");
    fs::create_dir_all(&blobs).unwrap();
    let partial = blobs.join(format!("{}.incomplete", sha256(&weights)));
    fs::write(&partial, &weights[..1000]).unwrap();
    hub.set(|settings| settings.shifts_ranges = true);
    let output = pull(&hub, home.path());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(fs::read(blobs.join(sha256(&weights))).unwrap(), weights);
}

#[test]
fn damaged_weights_are_removed_and_no_revision_names_them() {
    let (hub, home) = (hub("hf_vit"), tempfile::tempdir().unwrap());
    hub.set(|settings| settings.damages = true);
    let output = pull(&hub, home.path());
    assert!(
        refusal(&output).contains("model.safetensors: its SHA-256 is "),
        "{}",
        stderr(&output)
    );
    let folder = home.path().join("hub/models--someone--vit-tiny");
    assert!(!folder.join("refs/main").exists());
    assert_eq!(
        fs::read_dir(folder.join("blobs"))
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().path().extension().is_some())
            .count(),
        0
    );
    hub.set(|settings| settings.damages = false);
    assert_eq!(pull(&hub, home.path()).status.code(), Some(0));
}

#[test]
fn a_busy_hub_is_asked_again() {
    let (hub, home) = (hub("timm_deit"), tempfile::tempdir().unwrap());
    hub.set(|settings| settings.busy = 2);
    let output = pull(&hub, home.path());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn a_token_goes_to_the_hub_and_not_to_the_storage() {
    let (hub, home) = (hub("hf_vit"), tempfile::tempdir().unwrap());
    hub.set(|settings| settings.token = Some("hf_secret"));
    let output = pull(&hub, home.path());
    assert!(
        refusal(&output).contains("no such repository at http://127.0.0.1")
            && stderr(&output).contains("HF_TOKEN"),
        "{}",
        stderr(&output)
    );
    let output = variables(
        &hub.endpoint,
        home.path(),
        &["pull", MODEL],
        &[("HF_TOKEN", "hf_secret")],
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // The token of `hf auth login`.
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("token"), "hf_secret\n").unwrap();
    assert_eq!(pull(&hub, home.path()).status.code(), Some(0));
}

#[test]
fn timms_bare_name_means_its_default_weights() {
    let mut settings = Settings::default();
    let name = "timm/vit_base_patch16_224.augreg2_in21k_ft_in1k";
    settings
        .repositories
        .insert(name.into(), files(&at("tests/golden/timm_deit")));
    let (hub, home) = (Hub::start(settings), tempfile::tempdir().unwrap());
    let output = run(&hub.endpoint, home.path(), &["pull", "timm/vit_base_patch16_224"]);
    assert!(
        stderr(&output).contains(&format!("note: {name}: ")),
        "{}",
        stderr(&output)
    );
}

#[test]
fn an_adapter_brings_its_base_model() {
    let mut settings = Settings::default();
    settings
        .repositories
        .insert("org/base".into(), files(&at("tests/golden/hf_vit")));
    let adapter = adapter_of(r#"{"base_model_name_or_path": "org/base"}"#);
    settings.repositories.insert("org/adapter".into(), adapter);
    let (hub, home) = (Hub::start(settings), tempfile::tempdir().unwrap());
    let output = run(&hub.endpoint, home.path(), &["pull", "org/adapter"]);
    let paths: Vec<&str> = stdout(&output).lines().collect();
    assert_eq!(paths.len(), 2, "{}", stderr(&output));
    assert!(paths[0].contains("models--org--base") && paths[1].contains("models--org--adapter"));
}

/// Returns the files of a repository that contains only an adapter with this configuration.
fn adapter_of(config: &str) -> BTreeMap<String, Vec<u8>> {
    BTreeMap::from([
        ("adapter_config.json".into(), config.as_bytes().to_vec()),
        ("adapter_model.safetensors".into(), vec![0; 16]),
    ])
}

#[test]
fn an_adapter_beside_a_model_on_the_hub_brings_its_base_model_instead() {
    let mut settings = Settings::default();
    settings
        .repositories
        .insert("org/base".into(), files(&at("tests/golden/hf_vit")));
    let mut adapter = adapter_of(r#"{"base_model_name_or_path": "org/base"}"#);
    adapter.insert("config.json".into(), b"{}".to_vec());
    adapter.insert("model.safetensors".into(), vec![3; 9000]);
    settings.repositories.insert("org/adapter".into(), adapter);
    let (hub, home) = (Hub::start(settings), tempfile::tempdir().unwrap());
    let output = run(&hub.endpoint, home.path(), &["pull", "org/adapter"]);
    let paths: Vec<&str> = stdout(&output).lines().collect();
    assert_eq!(paths.len(), 2, "{}", stderr(&output));
    let mut names: Vec<_> = fs::read_dir(paths[1])
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["adapter_config.json", "adapter_model.safetensors"]);
}

#[test]
fn the_base_of_an_adapter_has_the_revision_of_its_configuration_and_no_base() {
    let mut settings = Settings::default();
    let repositories = [
        (
            "org/one",
            r#"{"base_model_name_or_path": "org/other", "revision": "refs/pr/1"}"#,
        ),
        ("org/other", r#"{"base_model_name_or_path": "org/one"}"#),
    ];
    for (name, config) in repositories {
        settings.repositories.insert(name.into(), adapter_of(config));
    }
    let (hub, home) = (Hub::start(settings), tempfile::tempdir().unwrap());
    let output = run(&hub.endpoint, home.path(), &["pull", "org/one"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let paths: Vec<&str> = stdout(&output).lines().collect();
    assert_eq!(paths.len(), 2, "{paths:?}");
    let reference = home.path().join("hub/models--org--other/refs/refs/pr/1");
    assert_eq!(fs::read_to_string(reference).unwrap(), COMMIT);
}

#[test]
fn a_server_that_never_sends_the_end_is_given_up() {
    let (hub, home) = (hub("hf_vit"), tempfile::tempdir().unwrap());
    hub.set(|settings| {
        settings.ignores_ranges = true;
        settings.cut_after = Some(5000);
    });
    let output = pull(&hub, home.path());
    assert!(
        refusal(&output).contains("model.safetensors: the connection ended after 5000 of "),
        "{}",
        stderr(&output)
    );
}

#[test]
fn what_cannot_be_pulled_is_said() {
    let (hub, home) = (hub("hf_vit"), tempfile::tempdir().unwrap());
    let said = |args: &[&str], set: &[(&str, &str)]| {
        let output = variables(&hub.endpoint, home.path(), args, set);
        refusal(&output).to_owned()
    };
    let offline = said(&["pull", MODEL], &[("HF_HUB_OFFLINE", "1")]);
    assert!(
        offline.contains("someone/vit-tiny: not downloaded, because HF_HUB_OFFLINE is set."),
        "{offline}"
    );
    assert!(hub.requests().is_empty());
    let unreachable = said(&["pull", MODEL], &[("HF_ENDPOINT", "http://127.0.0.1:9")]);
    assert!(
        unreachable.contains("http://127.0.0.1:9 cannot be reached: "),
        "{unreachable}"
    );
    let endpoint = said(&["pull", MODEL], &[("HF_ENDPOINT", "hub.local")]);
    assert!(endpoint.contains("HF_ENDPOINT is `hub.local`"), "{endpoint}");
    let certificate = said(&["pull", MODEL], &[("SSL_CERT_FILE", "absent.pem")]);
    assert!(certificate.contains("absent.pem: "), "{certificate}");
    let absent = said(&["pull", "someone/absent"], &[]);
    assert!(
        absent.contains("someone/absent: no such repository at "),
        "{absent}"
    );
    let revision = said(&["pull", "someone/vit-tiny@v9"], &[]);
    assert!(
        revision.contains("someone/vit-tiny@v9: has no revision `v9`"),
        "{revision}"
    );
    let name = said(&["pull", "vit_base_patch16_224"], &[]);
    assert!(name.contains("not a name on the Hugging Face hub"), "{name}");
    hub.set(|settings| settings.refuses = Some((403, "GatedRepo")));
    let gated = said(&["pull", MODEL], &[]);
    assert!(
        gated.contains(&format!(
            "gated. Accept its terms at {}/someone/vit-tiny",
            hub.endpoint
        )),
        "{gated}"
    );
    hub.set(|settings| {
        settings.refuses = None;
        settings
            .repositories
            .get_mut(MODEL)
            .unwrap()
            .remove("model.safetensors");
    });
    let pickled = said(&["pull", MODEL], &[]);
    assert!(
        pickled.contains("PyTorch's format only (pytorch_model.bin)"),
        "{pickled}"
    );
    assert!(!home.path().join("hub").exists(), "a refusal leaves nothing");
}
