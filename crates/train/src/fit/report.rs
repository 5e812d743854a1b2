//! HTML report of a run: curves, times, the last evaluation, and the recipe.

mod evaluation;
mod run;

use hipvit_report::chart::{Curve, LineChart};
use hipvit_report::drawing::number;
use hipvit_report::page::{document, escape, section, table};

use super::evaluation::Evaluation;
use super::events::{EpochEvent, Event, StepEvent};

/// Style in addition to that of all reports.
const STYLE: &str = "
.share { display: block; margin: 0 -.5em; padding: 0 .5em; background: color-mix(in srgb, var(--bar) var(--share), transparent) }
.wrong { background: color-mix(in srgb, var(--for) var(--share), transparent) }
img { display: block; width: 160px; height: auto; image-rendering: pixelated }
figcaption { width: 160px; overflow-wrap: anywhere }
";

/// Content of a report.
struct Report<'a> {
    /// Name of the run.
    name: String,
    /// Names and values of facts, such as the device.
    facts: Vec<(&'static str, String)>,
    /// Recipe as TOML.
    recipe: String,
    /// Events of the log.
    events: &'a [Event],
    /// Names of the classes.
    classes: &'a [String],
    /// Last evaluation.
    evaluation: Option<&'a Evaluation>,
    /// `data:` URL of each of the evaluation's worst images. `None` for an image that cannot be read any more.
    pictures: Vec<Option<String>>,
}

impl Report<'_> {
    /// Returns the page.
    fn page(&self) -> String {
        let mut body = format!("<h1>Training of {}</h1>\n", escape(&self.name));
        let facts: Vec<Vec<String>> = self
            .facts
            .iter()
            .map(|(name, value)| vec![escape(name), escape(value)])
            .collect();
        body += &table(&["", ""], 2, &facts);
        body += &section("Curves", &self.curves());
        if self.epochs().next().is_some() {
            body += &section("Epochs", &self.epoch_table());
        }
        if let Some(evaluation) = self.evaluation {
            body += &section("Last evaluation", &self.evaluated(evaluation));
        }
        body += &section("Recipe", &format!("<pre>{}</pre>", escape(&self.recipe)));
        document(&format!("Training of {}", self.name), STYLE, &body)
    }

    fn steps(&self) -> impl Iterator<Item = &StepEvent> {
        self.events.iter().filter_map(Event::as_step)
    }

    fn epochs(&self) -> impl Iterator<Item = &EpochEvent> {
        self.events.iter().filter_map(Event::as_epoch)
    }

    /// Returns a curve of the steps.
    fn of_steps(&self, name: &'static str, value: impl Fn(&StepEvent) -> f64) -> Curve<'static> {
        let points = self
            .steps()
            .map(|event| [event.step as f64, value(event)])
            .collect();
        Curve { name, points }
    }

    /// Returns a curve of the epochs.
    fn of_epochs(&self, name: &'static str, value: impl Fn(&EpochEvent) -> Option<f64>) -> Curve<'static> {
        let points = self
            .epochs()
            .filter_map(|event| Some([event.step as f64, value(event)?]));
        Curve {
            name,
            points: points.collect(),
        }
    }

    fn curves(&self) -> String {
        let percent = |share: f64| 100.0 * share;
        let charts = [
            (
                "Loss",
                vec![
                    self.of_steps("step", |event| f64::from(event.loss)),
                    self.of_epochs("epoch", |event| Some(event.loss)),
                    self.of_epochs("validation", |event| event.val_loss),
                    self.of_epochs("validation, not averaged", |event| event.unaveraged_val_loss),
                ],
            ),
            (
                "Accuracy in %",
                vec![
                    self.of_epochs("training", |event| event.train_accuracy.map(percent)),
                    self.of_epochs("validation", |event| event.val_accuracy.map(percent)),
                    self.of_epochs("validation, not averaged", |event| {
                        event.unaveraged_val_accuracy.map(percent)
                    }),
                ],
            ),
            (
                "Recall in %",
                vec![
                    self.of_epochs("image to text, nearest", |event| {
                        event.recall.map(|recall| percent(recall.image_to_text_1))
                    }),
                    self.of_epochs("image to text, 5 nearest", |event| {
                        event.recall.map(|recall| percent(recall.image_to_text_5))
                    }),
                    self.of_epochs("text to image, nearest", |event| {
                        event.recall.map(|recall| percent(recall.text_to_image_1))
                    }),
                    self.of_epochs("text to image, 5 nearest", |event| {
                        event.recall.map(|recall| percent(recall.text_to_image_5))
                    }),
                ],
            ),
            (
                "Character errors in %",
                vec![self.of_epochs("validation", |event| {
                    event.reading.map(|reading| percent(reading.character_error_rate))
                })],
            ),
            (
                "Learning rate",
                vec![self.of_steps("learning rate", |event| event.lr)],
            ),
            (
                "Norm of the gradients",
                vec![self.of_steps("norm", |event| f64::from(event.grad_norm))],
            ),
            (
                "Images per second",
                vec![self.of_steps("images per second", |event| event.images_per_second)],
            ),
        ];
        let drawn = charts.into_iter().filter_map(|(title, mut curves)| {
            curves.retain(|curve| !curve.points.is_empty());
            let x_name = "step";
            LineChart {
                title,
                x_name,
                curves,
            }
            .draw()
        });
        let charts: Vec<String> = drawn.collect();
        if charts.is_empty() {
            return "<p class=\"note\">No step has been logged yet.</p>".into();
        }
        format!(
            "<p class=\"note\">Losses and accuracies of training images are those of augmented images. Validation losses are \
             without label smoothing.</p>\n<div class=\"row\">\n{}\n</div>",
            charts.join("\n")
        )
    }

    fn epoch_table(&self) -> String {
        let heads = [
            "epoch",
            "step",
            "loss",
            "training",
            "validation loss",
            "validation",
            "training time",
            "validation time",
        ];
        let rows = self.epochs().map(|event| {
            vec![
                event.epoch.to_string(),
                event.step.to_string(),
                format!("{:.4}", event.loss),
                dash(event.train_accuracy.map(percent)),
                dash(event.val_loss.map(|loss| format!("{loss:.4}"))),
                dash(event.val_accuracy.map(percent)),
                duration(event.train_seconds),
                dash(event.val_seconds.map(duration)),
            ]
        });
        let rows: Vec<Vec<String>> = rows.collect();
        format!(
            "<details>\n<summary>All {} epochs</summary>\n{}</details>",
            rows.len(),
            table(&heads, 0, &rows)
        )
    }

    fn class(&self, index: usize) -> String {
        let name = self.classes.get(index);
        name.map_or_else(|| index.to_string(), |name| escape(name))
    }
}

/// Formats a share.
fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

fn dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".into())
}

/// Formats seconds, with two units from a minute on.
fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{} s", number(seconds)),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests;
