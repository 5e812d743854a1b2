//! `hipvit search`: rows near images and texts, near-duplicates, the page, and indexes that are refused.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::support::html::elements;
use crate::support::program::{hipvit, stderr, stdout};
use crate::support::{at, samples};

const CLIP: &str = "tests/golden/zero_shot/hf_clip";

/// Runs `hipvit` on the CPU.
fn run(arguments: &[&str]) -> Output {
    hipvit(arguments.iter().chain(&["--device", "cpu", "--quiet"]))
}

/// Runs `hipvit`, which must succeed. Returns the lines that it prints.
#[track_caller]
fn lines(arguments: &[&str]) -> Vec<String> {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output).lines().map(str::to_owned).collect()
}

#[track_caller]
fn records(arguments: &[&str]) -> Vec<Value> {
    let lines = lines(&[arguments, &["--json"]].concat());
    lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Runs `hipvit`, which must refuse. Returns its error.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    stderr(&output).to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns the embeddings that a command prints, by image or text.
fn embeddings(arguments: &[&str]) -> Vec<(String, Vec<f64>)> {
    let records = records(&[&["embed"], arguments].concat());
    let pair = |record: &Value| {
        let name = record.get("image").or(record.get("text")).unwrap();
        let values = record["embedding"].as_array().unwrap();
        let values = values.iter().map(|value| value.as_f64().unwrap());
        (name.as_str().unwrap().to_owned(), values.collect())
    };
    records.iter().map(pair).collect()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn every_form_of_an_index_has_the_same_neighbours() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("shards");
    fs::create_dir(&directory).unwrap();
    let all = samples();
    let (array, tensors, shard) = (
        folder.path().join("a.npy"),
        folder.path().join("a.safetensors"),
        directory.join("a.npy"),
    );
    for file in [&array, &tensors] {
        lines(&["embed", text(&all), "-o", text(file)]);
    }
    lines(&["embed", text(&all), "-o", text(&shard), "--shard-rows", "4"]);
    let files = fs::read_dir(&directory).unwrap().count();
    assert_eq!(files, 9, "an array, names and a description per shard");

    let embedded = embeddings(&[text(&all)]);
    let query = all.join("7.png");
    let own = &embedded.iter().find(|(name, _)| name == text(&query)).unwrap().1;
    let mut expected: Vec<(f64, &str)> = embedded
        .iter()
        .map(|(name, values)| (cosine(own, values), name.as_str()))
        .collect();
    expected.sort_by(|a, b| b.0.total_cmp(&a.0));
    for index in [&array, &tensors, &directory] {
        let found = records(&["search", text(index), "--image", text(&query), "-k", "5"]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0]["image"], text(&query));
        assert_eq!(found[0]["model"], "tinyvit32");
        let results = found[0]["results"].as_array().unwrap();
        assert_eq!(results.len(), 5);
        for (rank, (result, (score, name))) in results.iter().zip(&expected).enumerate() {
            assert_eq!(result["rank"], rank + 1);
            assert_eq!(result["name"], *name);
            assert!((result["score"].as_f64().unwrap() - score).abs() < 1e-5);
        }
    }
}

#[test]
fn texts_find_images_and_texts() {
    let folder = tempfile::tempdir().unwrap();
    let (images, texts, list) = (
        folder.path().join("images.npy"),
        folder.path().join("texts.npy"),
        folder.path().join("captions.csv"),
    );
    let model = at(CLIP);
    fs::write(&list, "id,caption\n1,a cat\n2,\"a dog, asleep\"\n3,a red car\n").unwrap();
    let from_list = ["--text-file", text(&list), "--text-column", "caption"];
    lines(&["embed", text(&samples()), "-m", text(&model), "-o", text(&images)]);
    lines(&[&["embed", "-m", text(&model), "-o", text(&texts)], &from_list[..]].concat());

    let found = records(&["search", text(&texts), "--text", "a dog, asleep", "-k", "1"]);
    assert_eq!(found[0]["results"][0]["name"], "a dog, asleep");
    assert!(found[0]["results"][0]["score"].as_f64().unwrap() > 1.0 - 1e-6);

    let embedded = embeddings(&[text(&samples()), "-m", text(&model)]);
    let queries = embeddings(&[&["-m", text(&model)], &from_list[..]].concat());
    let found = records(&[&["search", text(&images), "-k", "10"], &from_list[..]].concat());
    assert_eq!(found.len(), 3);
    for (found, (name, query)) in found.iter().zip(&queries) {
        assert_eq!(found["text"], name.as_str());
        for result in found["results"].as_array().unwrap() {
            let row = result["row"].as_u64().unwrap() as usize;
            assert_eq!(result["name"], embedded[row].0.as_str());
            assert!((result["score"].as_f64().unwrap() - cosine(query, &embedded[row].1)).abs() < 1e-5);
        }
    }
}

#[test]
fn an_index_of_another_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("model");
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(at("assets/tinyvit32")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let index = folder.path().join("a.npy");
    let query = samples().join("1.png");
    lines(&["embed", text(&samples()), "-m", text(&copy), "-o", text(&index)]);
    let search = ["search", text(&index), "--image", text(&query)];
    lines(&search);

    let error = refused(&[&search[..], &["-m", text(&at(CLIP))]].concat());
    assert!(
        error.contains("was made with") && error.contains("hf_clip"),
        "{error}"
    );
    let config = fs::read_to_string(copy.join("config.json")).unwrap();
    fs::write(copy.join("config.json"), config + "\n").unwrap();
    let error = refused(&search);
    assert!(error.contains("whose files have changed since"), "{error}");

    fs::remove_file(folder.path().join("a.index.json")).unwrap();
    let error = refused(&search);
    assert!(error.contains("does not say which model computed it"), "{error}");
    lines(&[&search[..], &["-m", text(&copy)]].concat());
    let error = refused(&["search", text(&index)]);
    assert!(error.contains("--image FILE"), "{error}");
    let error = refused(&[
        "embed",
        text(&query),
        "--shard-rows",
        "4",
        "-o",
        text(&folder.path().join("a.csv")),
    ]);
    assert!(error.contains("--shard-rows needs a file"), "{error}");
}

#[test]
fn pages_embed_thumbnails_and_escape_names() {
    let folder = tempfile::tempdir().unwrap();
    let photos = folder.path().join("photos");
    fs::create_dir(&photos).unwrap();
    let odd = photos.join("<b>&\"'.png");
    fs::copy(samples().join("3.png"), &odd).unwrap();
    fs::copy(samples().join("3.png"), photos.join("copy.png")).unwrap();
    fs::copy(samples().join("8.png"), photos.join("eight.png")).unwrap();
    let (index, page) = (
        folder.path().join("a.safetensors"),
        folder.path().join("page.html"),
    );
    lines(&["embed", text(&photos), "-o", text(&index)]);

    lines(&[
        "search",
        text(&index),
        "--image",
        text(&odd),
        "--html",
        text(&page),
    ]);
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("&lt;b&gt;&amp;&quot;&#39;.png"), "{html}");
    let names = elements(&html);
    let count = |name: &str| names.iter().filter(|found| *found == name).count();
    assert_eq!(count("img"), 4, "the query and three rows");
    assert_eq!(html.matches("src=\"data:image/png;base64,").count(), 4);
    assert!(
        !names
            .iter()
            .any(|name| ["script", "link", "b"].contains(&name.as_str()))
    );

    let pairs = records(&[
        "search",
        text(&index),
        "--duplicates",
        "0.999",
        "--html",
        text(&page),
    ]);
    assert_eq!(pairs.len(), 1);
    assert_eq!(pairs[0]["first"], text(&odd));
    assert_eq!(pairs[0]["second"], text(&photos.join("copy.png")));
    assert_eq!(pairs[0]["rows"], serde_json::json!([0, 1]));
    let html = fs::read_to_string(&page).unwrap();
    assert_eq!(elements(&html).iter().filter(|name| *name == "img").count(), 2);
    let table = lines(&["search", text(&index), "--duplicates", "0.999", "--format", "csv"]);
    assert_eq!(table[0], "first,second,first_row,second_row,similarity");
    assert_eq!(table.len(), 2);
}

#[test]
fn a_graph_is_built_searched_and_refused_when_it_is_stale() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("a.npy");
    let query = samples().join("4.png");
    lines(&["embed", text(&samples()), "-o", text(&index)]);
    let search = ["search", text(&index), "--image", text(&query)];
    let error = refused(&[&search[..], &["--search-on-gpu"]].concat());
    assert!(error.contains("--search-on-gpu needs a GPU"), "{error}");
    let output = run(&[&search[..], &["--approximate"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("a.hnsw.json: "), "{}", stderr(&output));

    assert!(lines(&["search", text(&index), "--build-graph"]).is_empty());
    // All of ten rows are in reach.
    assert_eq!(
        records(&[&search[..], &["--approximate"]].concat()),
        records(&search)
    );
    lines(&["embed", text(&query), "-o", text(&index)]);
    let output = run(&[&search[..], &["--approximate"]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("is stale"), "{}", stderr(&output));
}
