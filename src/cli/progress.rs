//! A progress bar on standard error, only on a terminal.

use std::io::{IsTerminal, stdout};

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar, and the lines that are printed meanwhile.
pub struct Progress {
    bar: ProgressBar,
    lines_on_terminal: bool,
}

impl Progress {
    /// A bar over `len` images; hidden for one image, or where standard error is no terminal.
    pub fn images(len: usize) -> Self {
        Self::counting(len, "images")
    }

    /// The same over other `things`.
    pub fn counting(len: usize, things: &str) -> Self {
        let bar = if len < 2 {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(len as u64)
        };
        let template = format!("{{bar:32}} {{pos}}/{{len}} {things}, {{per_sec}}, {{eta}} left {{wide_msg}}");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        // Not a steady tick, whose thread must not fail to start.
        bar.tick();
        Self {
            bar,
            lines_on_terminal: stdout().is_terminal(),
        }
    }

    /// Counts and names the one that begins.
    pub fn start(&self, what: &str) {
        self.bar.set_message(super::one_line(what));
        self.bar.inc(1);
    }

    /// Counts one.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Prints to standard output: above the bar if both are on a terminal.
    pub fn print<R>(&self, print: impl FnOnce() -> R) -> R {
        if self.lines_on_terminal {
            self.bar.suspend(print)
        } else {
            print()
        }
    }

    /// Prints to standard error, above the bar.
    pub fn report<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }
}

/// The bar disappears when the work ends, with an error too.
impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
