//! Several models and versions; loading, unloading and listing them.

use std::fs;

use serde_json::json;

use crate::support::at;
use crate::support::server::{Running, options};

/// Creates a folder with the models `one` (versions 1 and 12), `two`, and `broken`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let link = |from: &str, to: &str| {
        let to = folder.path().join(to);
        fs::create_dir_all(&to).unwrap();
        for file in ["config.json", "model.safetensors"] {
            fs::copy(at(from).join(file), to.join(file)).unwrap();
        }
    };
    link("assets/tinyvit32", "one/1");
    link("assets/tinyvit32_odd", "one/12");
    link("tests/golden/timm_vit_embedding", "two");
    fs::create_dir(folder.path().join("broken")).unwrap();
    fs::write(folder.path().join("broken/config.json"), "{").unwrap();
    // No model, and so not listed.
    fs::create_dir(folder.path().join("photos")).unwrap();
    folder
}

fn server(folder: &tempfile::TempDir) -> Running {
    let mut options = options();
    options.repository = Some(folder.path().to_owned());
    options.load_repository = false;
    options.model_control = true;
    Running::new(options)
}

#[test]
fn models_are_loaded_unloaded_and_listed() {
    let folder = folder();
    let running = server(&folder);
    let index = || {
        let index = running.post("/v2/repository/index", &[], b"").json();
        let index = index.as_array().unwrap().iter();
        let line = |model: &serde_json::Value| {
            format!("{} {} {}", model["name"], model["version"], model["state"]).replace('"', "")
        };
        index.map(line).collect::<Vec<_>>()
    };
    assert_eq!(
        index(),
        [
            "broken  UNAVAILABLE",
            "digits 1 READY",
            "one  UNAVAILABLE",
            "two  UNAVAILABLE"
        ]
    );
    assert_eq!(
        running.get("/v2/models/one").error(),
        (404, "model `one` is not loaded".into())
    );
    let load = |name: &str| running.post(&format!("/v2/repository/models/{name}/load"), &[], b"{}");
    assert_eq!(load("one").status, 200);
    let metadata = running.get("/v2/models/one").json();
    // The latest version is the one with the largest number.
    assert_eq!(metadata["versions"], json!(["1", "12"]));
    assert_eq!(
        metadata["outputs"],
        running.get("/v2/models/one/versions/12").json()["outputs"]
    );
    assert_eq!(load("two").status, 200);
    // It has no classification head.
    assert_eq!(
        running.get("/v2/models/two").json()["outputs"][0]["name"],
        "embedding"
    );
    let ready = running
        .post("/v2/repository/index", &[], b"{\"ready\": true}")
        .json();
    assert_eq!(ready.as_array().unwrap().len(), 4);

    let (status, message) = load("broken").error();
    assert_eq!(status, 400);
    assert!(
        message.starts_with("model `broken` cannot be loaded: ") && message.contains("config.json"),
        "{message}"
    );
    assert_eq!(running.get("/v2/health/ready").status, 200);

    // Loading replaces a model, unless the new one cannot be loaded.
    assert_eq!(load("one").status, 200);
    fs::write(folder.path().join("one/12/config.json"), "{").unwrap();
    assert_eq!(load("one").status, 400);
    assert_eq!(running.get("/v2/models/one/ready").status, 200);

    let unload = running.post("/v2/repository/models/one/unload", &[], b"");
    assert_eq!(unload.status, 200);
    assert_eq!(running.get("/v2/models/one/ready").error().0, 404);
}

#[test]
fn only_names_of_the_repository_are_loaded() {
    let folder = folder();
    let running = server(&folder);
    let outside = at("assets/tinyvit32");
    let outside = outside.to_str().unwrap().replace('/', "%2F");
    for name in [
        "three",
        "..",
        "%2E%2E",
        "..%2Fone",
        "one%2F1",
        "one%2F..%2Ftwo",
        &outside,
    ] {
        let response = running.post(&format!("/v2/repository/models/{name}/load"), &[], b"");
        assert_eq!(response.status, 404, "{name}: {}", response.text());
    }
}

#[test]
fn clients_control_models_only_where_they_may() {
    let running = Running::digits();
    let (status, message) = running
        .post("/v2/repository/models/digits/unload", &[], b"")
        .error();
    assert_eq!(status, 501);
    assert!(message.contains("--model-control"), "{message}");
    assert_eq!(running.get("/v2/models/digits/ready").status, 200);
}
