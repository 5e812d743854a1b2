//! A progress bar on standard error. It is hidden if standard error is not a terminal.

use std::fmt;
use std::io::{IsTerminal, stdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

use super::output;

/// A progress bar below the lines that the program prints to the terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Number of items passed to [`start`](Self::start) so far.
    started: AtomicU64,
    /// True if standard output is a terminal, so that the bar must make room for its lines.
    lines_on_terminal: bool,
}

impl Progress {
    /// Creates a bar for `len` images.
    ///
    /// The bar is hidden if `len` is less than 2, with `--quiet`, or if standard error is not a terminal.
    pub(crate) fn images(len: usize) -> Self {
        Self::counting(len, "images")
    }

    /// Creates a bar for `len` items. `things` is their plural noun, such as `cases`.
    pub(crate) fn counting(len: usize, things: &str) -> Self {
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
        // Draw once. `enable_steady_tick` would start a thread, which can fail.
        bar.tick();
        Self {
            bar,
            started: AtomicU64::new(0),
            lines_on_terminal: stdout().is_terminal(),
        }
    }

    /// Shows the name of the item that starts. Sets the position to the number of items started before.
    pub(crate) fn start(&self, what: &str) {
        self.bar.set_message(super::escape::one_line(what));
        self.bar
            .set_position(self.started.fetch_add(1, Ordering::Relaxed));
    }

    /// Advances the bar by one completed item.
    pub(crate) fn step(&self) {
        self.bar.inc(1);
    }

    /// Shows `what` beside the bar.
    pub(crate) fn message(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Counts `items` items as completed earlier, which do not affect the speed.
    pub(crate) fn skip(&self, items: u64) {
        self.bar.set_position(items);
        self.bar.reset_eta();
    }

    /// Resets the estimates of the speed and of the remaining time.
    pub(crate) fn reset_speed(&self) {
        self.bar.reset_eta();
    }

    /// Calls `print`, which writes to standard output. If standard output is a terminal, the text appears above the bar.
    pub(crate) fn print<R>(&self, print: impl FnOnce() -> R) -> R {
        if self.lines_on_terminal {
            self.bar.suspend(print)
        } else {
            print()
        }
    }

    /// Calls `print`, which writes to standard error. The text appears above the bar.
    pub(crate) fn report<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }
}

/// Removes the bar from the terminal, also after an error.
impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Formats the speed and the remaining time. Returns an empty string before the first item is done.
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
    fn the_speed_is_empty_until_it_is_known() {
        let minute = Duration::from_secs(60);
        assert_eq!(speed(0, 0.0, Duration::ZERO), "");
        assert_eq!(speed(3, 0.0, Duration::ZERO), "");
        assert_eq!(speed(3, 12.4, minute), ", 12/s, 60 seconds left");
        assert_eq!(speed(3, 0.25, minute), ", 4.0 s each, 60 seconds left");
    }
}
