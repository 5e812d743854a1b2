use std::fs;

use super::*;

#[test]
fn imagenet_has_a_thousand_classes_in_the_order_of_their_ids() {
    let labels = Labels::imagenet_1k();
    assert_eq!((labels.len(), labels.ids.len()), (1000, 1000));
    assert!(labels.ids.is_sorted_by(|a, b| a < b));
    for (index, id, name) in [
        (0, "n01440764", "tench, Tinca tinca"),
        (207, "n02099601", "golden retriever"),
        (281, "n02123045", "tabby, tabby cat"),
        (999, "n15075141", "toilet tissue, toilet paper, bathroom tissue"),
    ] {
        assert_eq!((labels.id(index), labels.get(index)), (Some(id), name));
    }
}

#[test]
fn a_class_is_found_by_id_label_index_and_synonym() {
    let labels = Labels::imagenet_1k();
    for text in [
        "n02123045",
        "tabby, tabby cat",
        "281",
        "0281",
        "Tabby_Cat",
        "tabby",
        " tabby-cat ",
    ] {
        assert_eq!(labels.find(text).unwrap(), 281, "{text}");
    }
    // Two classes have this name.
    let several = labels.find("crane").unwrap_err().to_string();
    assert!(
        several.contains("n02012849 (134, \"crane\")") && several.contains("n03126707 (517, \"crane\")"),
        "{several}"
    );
    let unknown = labels.find("goldn retriver").unwrap_err().to_string();
    assert!(
        unknown.starts_with(
            "class: \"goldn retriver\" is not one of the model's 1000 classes; expected an id such as n01440764, a label such as \
             \"tench, Tinca tinca\", or an index from 0 to 999; near it: \"golden retriever\""
        ),
        "{unknown}"
    );
    for text in ["cat", "Cats"] {
        let error = labels.find(text).unwrap_err().to_string();
        assert!(
            error.ends_with(
                "; near it: \"tabby, tabby cat\", \"tiger cat\", \"Persian cat\", \"Siamese cat, Siamese\", \"Egyptian cat\", \
                 \"Madagascar cat, ring-tailed lemur, Lemur catta\""
            ),
            "{error}"
        );
    }
    for text in ["", "1000", "-1", "n00000000", "zzzz"] {
        let error = labels.find(text).unwrap_err().to_string();
        assert!(error.contains("from 0 to 999"), "{error}");
    }
}

/// A label that is a number takes precedence over the index.
#[test]
fn a_label_goes_before_an_index() {
    let labels = Labels::from_iter(["2", "1", "0"]);
    assert_eq!(labels.find("2").unwrap(), 0);
    assert!(labels.id(0).is_none());
}

#[test]
fn the_labels_of_an_imagenet_model_are_recognised() {
    let imagenet = Labels::imagenet_1k();
    // transformers' checkpoints spell the names their own way.
    let mut names: Vec<String> = imagenet.iter().map(str::to_uppercase).collect();
    names[517] = "crane2".into();
    let own = Labels::from_iter(names).with_imagenet_ids();
    assert_eq!((own.get(517), own.id(517)), ("crane2", Some("n03126707")));
    assert_eq!(
        Labels::from_iter(imagenet.ids.to_vec()).with_imagenet_ids(),
        imagenet
    );
    let others = Labels::from_iter((0..1000).map(|index| format!("thing {index}")));
    assert_eq!(others.clone().with_imagenet_ids(), others);
    let unnamed = |count| Labels::of_model(count, |_| None, |index| format!("class {index}"));
    assert_eq!(unnamed(1000), imagenet);
    assert_eq!(unnamed(3).get(2), "class 2");
    let one = Labels::of_model(1000, |index| (index == 3).then_some((None, "x")), |_| "?".into());
    assert_eq!((one.get(3), one.get(4), one.id(3)), ("x", "?", None));
}

#[test]
fn labels_are_read_from_text_and_json() {
    let directory = tempfile::tempdir().unwrap();
    let read = |name: &str, content: &str| {
        let file = directory.path().join(name);
        fs::write(&file, content).unwrap();
        Labels::from_file(&file).map_err(|error| error.to_string())
    };
    let expected = Labels::from_iter(["cat", "dog, hound", "Zürich"]);
    for (name, content) in [
        ("a.txt", "cat\ndog, hound\nZürich\n\n"),
        ("b", "\u{feff}cat\r\ndog, hound\r\nZürich"),
        ("c.json", r#"["cat", "dog, hound", "Zürich"]"#),
        ("d.json", r#"{"2": "Zürich", "0": "cat", "1": "dog, hound"}"#),
        ("e", r#"{"dog, hound": 1, "cat": 0, "Zürich": 2}"#),
        (
            "f.json",
            r#"{"model_type": "vit", "id2label": {"1": "dog, hound", "0": "cat", "2": "Zürich"}}"#,
        ),
    ] {
        assert_eq!(read(name, content).unwrap(), expected, "{name}");
    }
    let with_ids = read("ids.tsv", "n1\tcat\nn2\tdog\n").unwrap();
    assert_eq!((with_ids.id(1), with_ids.get(1)), (Some("n2"), "dog"));
    assert_eq!(
        read("ids.json", r#"{"1": ["n2", "dog"], "0": ["n1", "cat"]}"#).unwrap(),
        with_ids
    );
    // A text file may begin with what looks like JSON.
    assert_eq!(read("bracket.txt", "[unknown]\nb").unwrap().get(0), "[unknown]");

    for (name, content, reason) in [
        ("empty", "\n", "has no labels"),
        ("gap.txt", "cat\n\ndog", "line 2 is empty; expected a label"),
        ("mixed.txt", "cat\nn2\tdog", "line 2: either every line has an id"),
        ("not.json", "cat", "is not valid JSON"),
        (
            "numbers.json",
            "[1, 2]",
            "is a list with an element that is not a string",
        ),
        (
            "hole.json",
            r#"{"0": "a", "2": "b"}"#,
            "has 2 labels, but one of class 2",
        ),
        ("twice.json", r#"{"a": 0, "b": 0}"#, "has two labels of class 0"),
        (
            "word.json",
            r#"{"a": "b"}"#,
            "`a` is neither an index with a label",
        ),
        (
            "text.json",
            "\"cat\"",
            "is neither a list of labels nor an object",
        ),
    ] {
        let error = read(name, content).unwrap_err();
        assert!(error.contains(name) && error.contains(reason), "{error}");
    }
    let error = Labels::from_file(directory.path()).unwrap_err().to_string();
    assert!(error.contains("is a directory, not a regular file"), "{error}");
}

#[test]
fn a_wrong_count_names_both() {
    let labels = Labels::from_iter(["a", "b"]);
    assert!(labels.check(2).is_ok());
    let error = labels.check(3).unwrap_err().to_string();
    assert_eq!(error, "labels: there are 2 labels, but the model has 3 classes");
    assert!(
        labels
            .check(0)
            .unwrap_err()
            .to_string()
            .contains("no classification head")
    );
}

#[test]
fn a_file_may_be_in_utf_16() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("labels.txt");
    for mark in ["\u{feff}", ""] {
        let text = format!("{mark}cat\r\ndög\r\n");
        let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        fs::write(&file, bytes).unwrap();
        let labels = Labels::from_file(&file).unwrap();
        assert_eq!(labels.iter().collect::<Vec<_>>(), ["cat", "dög"]);
    }
}
