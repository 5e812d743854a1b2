//! Tests of reports.

use serde_json::json;

use super::*;

fn events() -> Vec<Event> {
    let step = |step: u64| {
        json!({
            "event": "step", "epoch": 1, "step": step, "loss": 2.0 / step as f64, "lr": 1e-3, "grad_norm": 1.0,
            "images_per_second": 100.0,
        })
    };
    let epoch = json!({
        "event": "epoch", "epoch": 1, "step": 3, "loss": 1.25, "train_accuracy": 0.5, "val_loss": 1.5, "val_accuracy": 0.75,
        "train_seconds": 61.0, "val_seconds": 2.5, "skipped": 0,
    });
    let lines = [step(1), step(2), step(3), epoch];
    lines.map(|line| serde_json::from_value(line).unwrap()).to_vec()
}

fn evaluation(classes: usize) -> Evaluation {
    let images: Vec<_> = (0..classes)
        .map(|label| json!({"label": label, "prediction": label, "images": 3}))
        .collect();
    let mut confusions = images;
    confusions.insert(1, json!({"label": 0, "prediction": 1, "images": 9}));
    let worst = json!([
        {"index": 4, "name": "<b>.png", "label": 0, "prediction": 1, "probability": 0.875, "loss": 3.0},
        {"index": 2, "name": "gone.png", "label": 1, "prediction": 1, "probability": null, "loss": null},
    ]);
    serde_json::from_value(json!({
        "step": 3, "images": 9 + 3 * classes, "correct": 3 * classes, "loss": 1.5, "confusions": confusions, "worst": worst,
    }))
    .unwrap()
}

fn page(classes: usize) -> String {
    let classes: Vec<String> = (0..classes).map(|index| format!("<class {index}>")).collect();
    let (events, evaluation) = (events(), evaluation(classes.len()));
    let report = Report {
        name: "a & b".into(),
        facts: vec![("device", "CPU".into())],
        recipe: "epochs = 3\n".into(),
        events: &events,
        classes: &classes,
        evaluation: Some(&evaluation),
        pictures: vec![Some("data:image/png;base64,AAAA".into()), None],
    };
    report.page()
}

#[test]
fn a_page_has_curves_times_recipe_confusions_and_pictures() {
    let page = page(2);
    for expected in [
        "<title>Training of a &amp; b</title>",
        "<td>device</td><td>CPU</td>",
        "<pre>epochs = 3\n</pre>",
        "<td class=\"n\">1.2500</td><td class=\"n\">50.00 %</td><td class=\"n\">1.5000</td><td class=\"n\">75.00 %</td>",
        "<td class=\"n\">1 min 01 s</td><td class=\"n\">2.5 s</td>",
        "6 of 15 validation images are classified correctly (40.00 %), with a mean loss of 1.5000.",
        "<span class=\"share\" style=\"--share: 25%\">3</span>",
        "<span class=\"share wrong\" style=\"--share: 75%\">9</span>",
        "<img src=\"data:image/png;base64,AAAA\" alt=\"&lt;b&gt;.png\"/>",
        "is &lt;class 0&gt;, predicted as &lt;class 1&gt; (87.50 %), loss 3.000",
        "is &lt;class 1&gt;, predicted as &lt;class 1&gt; (–), loss not finite",
        "The image cannot be read.",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    // One chart each of loss, accuracy, learning rate, norm and speed.
    assert_eq!(page.matches("<svg").count(), 5);
    assert_eq!(page.matches("<polyline").count(), 8);
}

#[test]
fn many_classes_have_lists_instead_of_a_matrix() {
    let page = page(40);
    assert!(!page.contains("Confusion matrix"));
    let confusion =
        "<td>&lt;class 0&gt;</td><td>&lt;class 1&gt;</td><td class=\"n\">9</td><td class=\"n\">75.00 %</td>";
    assert!(page.contains(confusion), "{page}");
    let lowest = page.split("lowest accuracies").nth(1).unwrap();
    let first = "<td>&lt;class 0&gt;</td><td class=\"n\">12</td><td class=\"n\">25.00 %</td>";
    assert!(lowest.contains(first), "{page}");
}

#[test]
fn a_run_without_events_has_a_page() {
    let report = Report {
        name: "run".into(),
        facts: Vec::new(),
        recipe: String::new(),
        events: &[],
        classes: &[],
        evaluation: None,
        pictures: Vec::new(),
    };
    let page = report.page();
    assert!(page.contains("No step has been logged yet."), "{page}");
    assert!(
        !page.contains("<svg") && !page.contains("Last evaluation"),
        "{page}"
    );
}

#[test]
fn durations_have_two_units() {
    let texts = [0.25, 59.4, 59.6, 3599.0, 7325.0].map(duration);
    assert_eq!(
        texts,
        ["0.25 s", "59.4 s", "1 min 00 s", "59 min 59 s", "2 h 02 min"]
    );
}
