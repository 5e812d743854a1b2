//! `hipvit pull`: downloads models from the Hugging Face hub.

use std::io::Write;
use std::ops::ControlFlow;

use hipvit::model::{self, PullProgress, Pulled};
use indicatif::{DecimalBytes, ProgressBar, ProgressStyle};

use super::outcome::Outcome;
use super::output;

const EXAMPLES: &str = "\
Examples:
  hipvit pull timm/vit_base_patch16_224
  hipvit classify cat.jpg -m timm/vit_base_patch16_224
  hipvit pull openai/clip-vit-base-patch32@main

Files are stored in the Hugging Face cache, which Python's libraries share. Cached files are not downloaded again. \
An interrupted download continues.

`hipvit help environment` lists the variables for the cache, a token, a mirror and a proxy.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Models: ORG/NAME or ORG/NAME@REVISION
    #[arg(value_name = "MODEL", required = true, help_heading = "Model")]
    models: Vec<String>,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        for model in &self.models {
            let bar = Bar::new();
            let pulled = model::pull(model, |progress| {
                bar.show(progress);
                ControlFlow::Continue(())
            })?;
            drop(bar);
            report(&pulled)?;
        }
        Ok(Outcome::Complete)
    }
}

/// Prints the directory of a model. Prints the downloaded size on standard error.
fn report(pulled: &Pulled) -> anyhow::Result<()> {
    if let Some(base) = &pulled.base {
        report(base)?;
    }
    let size = match pulled.downloaded {
        0 => "already in the cache".to_owned(),
        bytes => format!("{} downloaded", DecimalBytes(bytes)),
    };
    output::note(&format!("{}: {size}", pulled.repository));
    let mut stdout = output::stdout();
    let printed = writeln!(
        stdout,
        "{}",
        super::escape::one_line(&pulled.path.display().to_string())
    );
    printed.and_then(|()| stdout.flush()).map_err(output::named)?;
    Ok(())
}

/// Progress bar in bytes on standard error. Hidden if that is not a terminal.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        let bar = if output::is_quiet() {
            ProgressBar::hidden()
        } else {
            ProgressBar::no_length()
        };
        let template =
            "{bar:32} {decimal_bytes}/{decimal_total_bytes}, {decimal_bytes_per_sec}, {eta} left {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    fn show(&self, progress: PullProgress<'_>) {
        self.0.set_length(progress.total);
        self.0.set_position(progress.done);
        self.0.set_message(super::escape::one_line(progress.file));
    }
}

/// Removes the bar when the download ends, also after an error.
impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
