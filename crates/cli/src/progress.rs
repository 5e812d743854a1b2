//! A progress bar on standard error, only on a terminal.

use std::fmt;
use std::io::{IsTerminal, stdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

use super::output;

/// A progress bar that moves aside for other lines on the terminal.
pub struct Progress {
    bar: ProgressBar,
    started: AtomicU64,
    lines_on_terminal: bool,
}

impl Progress {
    /// Creates a bar over `len` images. It is hidden for one image, and if standard error is not a terminal.
    pub fn images(len: usize) -> Self {
        Self::counting(len, "images")
    }

    /// Creates a bar over `len` other `things`.
    pub fn counting(len: usize, things: &str) -> Self {
        let bar = if len < 2 || output::is_quiet() {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(len as u64)
        };
        let template = format!("{{bar:32}} {{pos}}/{{len}} {things}{{speed}} {{wide_msg}}");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(
                style.with_key("speed", |state: &ProgressState, to: &mut dyn fmt::Write| {
                    let _ = to.write_str(&speed(state.pos(), state.per_sec(), state.eta()));
                }),
            );
        }
        // A steady tick needs a thread, which could fail to start.
        bar.tick();
        Self {
            bar,
            started: AtomicU64::new(0),
            lines_on_terminal: stdout().is_terminal(),
        }
    }

    /// Shows the item that begins, and counts the previous ones.
    pub fn start(&self, what: &str) {
        self.bar.set_message(super::one_line(what));
        self.bar
            .set_position(self.started.fetch_add(1, Ordering::Relaxed));
    }

    /// Counts one item.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Restarts the estimate of the speed at the next step.
    pub fn forget_speed(&self) {
        self.bar.reset_eta();
    }

    /// Prints to standard output. If both are on a terminal, the text appears above the bar.
    pub fn print<R>(&self, print: impl FnOnce() -> R) -> R {
        if self.lines_on_terminal {
            self.bar.suspend(print)
        } else {
            print()
        }
    }

    /// Prints to standard error above the bar.
    pub fn report<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }
}

/// Removes the bar when the work ends, also after an error.
impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Formats the speed and the remaining time; empty before the first item is done.
fn speed(done: u64, per_second: f64, left: Duration) -> String {
    if done == 0 || per_second <= 0.0 {
        return String::new();
    }
    let rate = match per_second {
        10.0.. => format!("{per_second:.0}/s"),
        1.0.. => format!("{per_second:.1}/s"),
        _ => format!("{:.1} s each", 1.0 / per_second),
    };
    format!(", {rate}, {} left", HumanDuration(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_shown_when_one_is_known() {
        let minute = Duration::from_secs(60);
        assert_eq!(speed(0, 0.0, Duration::ZERO), "");
        assert_eq!(speed(3, 0.0, Duration::ZERO), "");
        assert_eq!(speed(3, 12.4, minute), ", 12/s, 60 seconds left");
        assert_eq!(speed(3, 0.25, minute), ", 4.0 s each, 60 seconds left");
    }
}
