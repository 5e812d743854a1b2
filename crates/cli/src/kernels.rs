//! `hipvit kernels`: lists the kernels that were compiled on this machine.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use hipvit::hip::{CachedKernel, KernelCache};
use hipvit::kernels::kernel_cache;
use hipvit_diagnostics::table::{Column, Table};
use serde::Serialize;

use super::escape::lines;
use super::outcome::Outcome;
use super::{output, record};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Output of the command.
#[derive(Serialize)]
struct Report {
    /// Folder of the cache; `None` if it is disabled.
    folder: Option<String>,
    kernels: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    program: String,
    target: String,
    options: Vec<String>,
    compile_seconds: f64,
    bytes: u64,
    /// Seconds since 1970-01-01 00:00 UTC.
    used: u64,
}

impl Row {
    fn new(kernel: CachedKernel) -> Self {
        let used = kernel.used.duration_since(UNIX_EPOCH);
        Self {
            program: kernel.program,
            target: kernel.target,
            options: kernel.options,
            compile_seconds: kernel.compile_time.as_secs_f64(),
            bytes: kernel.bytes,
            used: used.map_or(0, |since| since.as_secs()),
        }
    }

    /// Returns the macros that select a variant, such as `dtype bf16`. The others are the same for all kernels.
    fn variant(&self) -> String {
        let macros = self.options.iter().filter_map(|option| {
            let (name, value) = option.strip_prefix("-DHIPVIT_")?.split_once('=')?;
            Some(format!("{} {value}", name.to_lowercase().replace('_', " ")))
        });
        macros.collect::<Vec<_>>().join(", ")
    }
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let cache = kernel_cache();
        let kernels = cache
            .as_ref()
            .map_or_else(|| Ok(Vec::new()), KernelCache::kernels)?;
        let report = Report {
            folder: cache.map(|cache| cache.folder().display().to_string()),
            kernels: kernels.into_iter().map(Row::new).collect(),
        };
        let mut out = output::stdout();
        if self.json {
            record::write(&mut out, &report)?;
        } else {
            write!(out, "{}", lines(&report.text(SystemTime::now(), output::width())))?;
        }
        Ok(Outcome::Complete)
    }
}

impl Report {
    fn text(&self, now: SystemTime, width: Option<usize>) -> String {
        let Some(folder) = &self.folder else {
            return "nothing is kept, since HIPVIT_CACHE_DIR is empty\n".into();
        };
        if self.kernels.is_empty() {
            return format!("no compiled kernels in {folder}\n");
        }
        let bytes: u64 = self.kernels.iter().map(|kernel| kernel.bytes).sum();
        let seconds: f64 = self.kernels.iter().map(|kernel| kernel.compile_seconds).sum();
        let sum = format!(
            "{} kernels, {:.1} MB, compiled in {seconds:.1} s, in {folder}\n",
            self.kernels.len(),
            bytes as f64 / 1e6
        );
        let mut table = Table::new([
            Column::left("kernel"),
            Column::left("variant").wraps(16).rank(2),
            Column::left("GPU").wraps(8).rank(3),
            Column::right("kB").rank(1),
            Column::right("compiled in s"),
            Column::left("last used").rank(4),
        ]);
        for kernel in &self.kernels {
            let used = UNIX_EPOCH + Duration::from_secs(kernel.used);
            table.row([
                kernel.program.trim_end_matches(".hip").to_owned(),
                kernel.variant(),
                kernel.target.clone(),
                format!("{:.0}", kernel.bytes as f64 / 1e3),
                format!("{:.1}", kernel.compile_seconds),
                ago(now.duration_since(used).unwrap_or_default()),
            ]);
        }
        format!("{}\n\n{sum}", table.text(width))
    }
}

/// Returns a time before now, such as `3 hours ago`.
fn ago(time: Duration) -> String {
    let seconds = time.as_secs();
    let (count, unit) = match seconds {
        0..60 => return "now".into(),
        60..3600 => (seconds / 60, "minute"),
        3600..86400 => (seconds / 3600, "hour"),
        _ => (seconds / 86400, "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural} ago")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_listed_with_their_variants() {
        let now = UNIX_EPOCH + Duration::from_hours(100);
        let kernel = CachedKernel {
            program: "attention.hip".into(),
            target: "gfx942".into(),
            options: ["-std=c++17", "-DHIPVIT_DTYPE=bf16", "-DHIPVIT_HEAD_DIM=64"]
                .map(String::from)
                .into(),
            compile_time: Duration::from_millis(1250),
            bytes: 42_100,
            used: now - Duration::from_hours(49),
        };
        let report = |kernels| Report {
            folder: Some("/cache".into()),
            kernels,
        };
        let text = report(vec![Row::new(kernel)]).text(now, None);
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        let expected = "attention dtype bf16, head dim 64 gfx942 42 1.2 2 days ago";
        assert_eq!(row.join(" "), expected, "{text}");
        let sum = "1 kernels, 0.0 MB, compiled in 1.2 s, in /cache";
        assert_eq!(text.lines().last(), Some(sum));
        let none = report(Vec::new()).text(now, None);
        assert_eq!(none, "no compiled kernels in /cache\n");
    }

    #[test]
    fn times_are_told_in_the_largest_unit() {
        for (seconds, expected) in [
            (59, "now"),
            (60, "1 minute ago"),
            (7199, "1 hour ago"),
            (172_800, "2 days ago"),
        ] {
            assert_eq!(ago(Duration::from_secs(seconds)), expected);
        }
    }
}
