//! A progress bar on standard error for work that lasts, and only on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over `len` images. Hidden where standard error is no terminal, or standard output is one and shows a line
/// an image anyway.
pub fn images(len: usize, lines_on_stdout: bool) -> ProgressBar {
    use std::io::IsTerminal;
    if lines_on_stdout && std::io::stdout().is_terminal() || len < 2 {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(len as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:32} {pos}/{len} images, {per_sec}, {eta} left") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
