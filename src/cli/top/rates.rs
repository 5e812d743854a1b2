//! Two readings of a server's metrics, and what happened between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// One reading: every sample of the text format.
#[derive(Clone, Debug)]
pub struct Snapshot {
    at: Instant,
    samples: Vec<Sample>,
}

#[derive(Clone, Debug, PartialEq)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Snapshot {
    pub fn parse(text: &str, at: Instant) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self {
            at,
            samples: lines.filter_map(sample).collect(),
        }
    }

    /// Returns true if a server of hipvit wrote it.
    pub fn is_of_hipvit(&self) -> bool {
        self.samples
            .iter()
            .any(|sample| sample.name.starts_with("hipvit_"))
    }

    /// The sum of the samples of this name with these labels.
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let matching = self.matching(name, labels).map(|sample| sample.value);
        matching.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
    }

    fn matching<'a>(&'a self, name: &'a str, labels: &'a [(&str, &str)]) -> impl Iterator<Item = &'a Sample> {
        let has = move |sample: &Sample| {
            let mut wanted = labels.iter();
            wanted.all(|&(name, value)| sample.labels.get(name).is_some_and(|v| v == value))
        };
        self.samples
            .iter()
            .filter(move |sample| sample.name == name && has(sample))
    }

    fn values_of(&self, label: &str) -> BTreeSet<String> {
        let values = self.samples.iter().filter_map(|sample| sample.labels.get(label));
        values.filter(|value| !value.is_empty()).cloned().collect()
    }
}

/// `name{label="value",…} number`
fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, mut rest) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}')?),
        None => (series, ""),
    };
    let mut labels = BTreeMap::new();
    while !rest.is_empty() {
        let (label, quoted) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = quoted.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at,
                (_, '\\') => match characters.next()?.1 {
                    'n' => value.push('\n'),
                    escaped => value.push(escaped),
                },
                (_, c) => value.push(c),
            }
        };
        labels.insert(label.to_owned(), value);
        rest = quoted[end + 1..].trim_start_matches(',');
    }
    Some(Sample {
        name: name.to_owned(),
        labels,
        value: value.parse().ok()?,
    })
}

/// What a server did between two readings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    pub models: Vec<Model>,
    pub gpus: Vec<Gpu>,
    pub connections: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    pub name: String,
    pub requests: f64,
    pub images: f64,
    /// Images in the queue or in a batch.
    pub queued: f64,
    /// The mean size of a batch.
    pub batch: Option<f64>,
    /// Of the latency, in seconds.
    pub median: Option<f64>,
    pub p99: Option<f64>,
    /// The mean time of each stage, in seconds.
    pub stages: [Option<f64>; STAGES.len()],
    pub shed: f64,
    pub errors: f64,
    /// Those that work.
    pub instances: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gpu {
    pub device: String,
    pub memory_used: Option<f64>,
    pub memory: Option<f64>,
    pub busy: Option<f64>,
    pub power: Option<f64>,
    pub temperature: Option<f64>,
    pub joules_per_image: Option<f64>,
}

pub const STAGES: [&str; 5] = ["queue", "decode", "resize", "copy", "compute"];

impl Rates {
    pub fn between(before: &Snapshot, now: &Snapshot) -> Self {
        let seconds = now.at.saturating_duration_since(before.at).as_secs_f64();
        let difference = |name: &str, labels: &[(&str, &str)]| {
            let now = now.sum(name, labels)?;
            let more = now - before.sum(name, labels).unwrap_or(0.0);
            // A server that was restarted counts from 0.
            Some(if more < 0.0 { now } else { more })
        };
        let rate = |name: &str, labels: &[(&str, &str)]| {
            if seconds > 0.0 {
                difference(name, labels).unwrap_or(0.0) / seconds
            } else {
                0.0
            }
        };
        let mean = |name: &str, labels: &[(&str, &str)]| {
            let count = difference(&format!("{name}_count"), labels).filter(|&count| count > 0.0)?;
            Some(difference(&format!("{name}_sum"), labels)? / count)
        };
        let model = |name: String| {
            let of = [("model", name.as_str())];
            let all = rate("hipvit_requests_total", &of);
            let ok = rate("hipvit_requests_total", &[of[0], ("outcome", "ok")]);
            let shed = rate("hipvit_requests_total", &[of[0], ("outcome", "overloaded")]);
            let quantile = |q| {
                let bucket = "hipvit_request_duration_seconds_bucket";
                quantile(q, &buckets(now, bucket, &of), &buckets(before, bucket, &of))
            };
            Model {
                requests: all,
                images: rate("hipvit_images_total", &of),
                queued: now.sum("hipvit_queue_images", &of).unwrap_or(0.0),
                batch: mean("hipvit_batch_size", &of),
                median: quantile(0.5),
                p99: quantile(0.99),
                stages: STAGES.map(|stage| mean("hipvit_stage_duration_seconds", &[of[0], ("stage", stage)])),
                shed,
                errors: (all - ok - shed).max(0.0),
                instances: now.sum("hipvit_instances", &of).unwrap_or(0.0),
                name,
            }
        };
        let images = difference("hipvit_images_total", &[]).filter(|&images| images > 0.0);
        let gpu = |device: String| {
            let of = [("device", device.as_str())];
            let energy = difference("hipvit_gpu_energy_joules_total", &of);
            Gpu {
                memory_used: now.sum("hipvit_gpu_memory_used_bytes", &of),
                memory: now.sum("hipvit_gpu_memory_bytes", &of),
                busy: now.sum("hipvit_gpu_busy_ratio", &of),
                power: now.sum("hipvit_gpu_power_watts", &of),
                temperature: now.sum("hipvit_gpu_temperature_celsius", &of),
                joules_per_image: energy.zip(images).map(|(energy, images)| energy / images),
                device,
            }
        };
        // Those of a group that divides models are in one label: `hip:0,1`.
        let named = now.values_of("device");
        let ordinals = named.iter().filter_map(|device| device.strip_prefix("hip:"));
        let gpus = ordinals.flat_map(|ordinals| ordinals.split(',').map(|n| format!("hip:{n}")));
        let gpus: BTreeSet<String> = gpus.collect();
        Self {
            models: now.values_of("model").into_iter().map(model).collect(),
            gpus: gpus.into_iter().map(gpu).collect(),
            connections: now.sum("hipvit_connections", &[]).unwrap_or(0.0),
        }
    }
}

/// The cumulative counts of a histogram by upper bound.
fn buckets(snapshot: &Snapshot, name: &str, labels: &[(&str, &str)]) -> Vec<(f64, f64)> {
    let mut buckets: Vec<(f64, f64)> = Vec::new();
    for sample in snapshot.matching(name, labels) {
        let Some(bound) = sample.labels.get("le").and_then(|bound| match bound.as_str() {
            "+Inf" => Some(f64::INFINITY),
            bound => bound.parse().ok(),
        }) else {
            continue;
        };
        match buckets.iter_mut().find(|(known, _)| *known == bound) {
            Some((_, count)) => *count += sample.value,
            None => buckets.push((bound, sample.value)),
        }
    }
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    buckets
}

/// The quantile of what was added between two readings, linear within its bucket as Prometheus computes it.
fn quantile(q: f64, now: &[(f64, f64)], before: &[(f64, f64)]) -> Option<f64> {
    let added: Vec<(f64, f64)> = now
        .iter()
        .map(|&(bound, count)| {
            let known = before
                .iter()
                .find(|(b, _)| *b == bound)
                .map_or(0.0, |(_, count)| *count);
            (bound, if count < known { count } else { count - known })
        })
        .collect();
    let total = added
        .last()
        .map(|(_, count)| *count)
        .filter(|&total| total > 0.0)?;
    let rank = q * total;
    let (mut lower, mut below) = (0.0, 0.0);
    for (bound, count) in added {
        if count >= rank {
            if bound.is_infinite() {
                return Some(lower);
            }
            return Some(lower + (bound - lower) * (rank - below) / (count - below).max(f64::MIN_POSITIVE));
        }
        (lower, below) = (bound, count);
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BEFORE: &str = r#"# HELP hipvit_images Images
hipvit_images_total{model="a"} 100
hipvit_images_total{model="b"} 5
hipvit_requests_total{model="a",protocol="http",outcome="ok"} 40
hipvit_request_duration_seconds_bucket{le="0.01",model="a"} 10
hipvit_request_duration_seconds_bucket{le="0.02",model="a"} 10
hipvit_request_duration_seconds_bucket{le="+Inf",model="a"} 10
hipvit_gpu_energy_joules_total{device="hip:0"} 1000.0
"#;
    const NOW: &str = r#"hipvit_images_total{model="a"} 300
hipvit_images_total{model="b"} 5
hipvit_requests_total{model="a",protocol="http",outcome="ok"} 60
hipvit_requests_total{model="a",protocol="grpc",outcome="overloaded"} 10
hipvit_requests_total{model="a",protocol="grpc",outcome="internal"} 2
hipvit_request_duration_seconds_bucket{le="0.01",model="a"} 10
hipvit_request_duration_seconds_bucket{le="0.02",model="a"} 30
hipvit_request_duration_seconds_bucket{le="+Inf",model="a"} 30
hipvit_stage_duration_seconds_sum{model="a",stage="compute"} 0.5
hipvit_stage_duration_seconds_count{model="a",stage="compute"} 25
hipvit_instances{model="a",device="cpu"} 1
hipvit_instances{model="a",device="hip:0,1"} 1
hipvit_gpu_energy_joules_total{device="hip:0"} 1100.0
hipvit_gpu_busy_ratio{device="hip:0"} 0.75
odd{text="a\"b"} 7
"#;

    #[test]
    fn rates_are_of_what_was_added() {
        let at = Instant::now();
        let before = Snapshot::parse(BEFORE, at);
        let now = Snapshot::parse(NOW, at + Duration::from_secs(2));
        let rates = Rates::between(&before, &now);
        let names: Vec<&str> = rates.models.iter().map(|model| model.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let a = &rates.models[0];
        assert_eq!((a.images, a.requests, a.shed, a.errors), (100.0, 16.0, 5.0, 1.0));
        assert_eq!(
            (a.median, a.stages[4], a.instances),
            (Some(0.015), Some(0.02), 2.0)
        );
        assert_eq!(rates.models[1].images, 0.0);
        let devices: Vec<&str> = rates.gpus.iter().map(|gpu| gpu.device.as_str()).collect();
        assert_eq!(devices, ["hip:0", "hip:1"]);
        let gpu = &rates.gpus[0];
        assert_eq!(
            (gpu.busy, gpu.joules_per_image, gpu.memory),
            (Some(0.75), Some(0.5), None)
        );
    }

    #[test]
    fn a_server_that_was_restarted_counts_from_the_start() {
        let at = Instant::now();
        let before = Snapshot::parse(NOW, at);
        let now = Snapshot::parse(BEFORE, at + Duration::from_secs(1));
        assert_eq!(Rates::between(&before, &now).models[0].images, 100.0);
    }

    #[test]
    fn labels_may_have_quotes() {
        let parsed = sample(r#"odd{text="a\"b\\c\nd, e=",x="1"} 7"#).unwrap();
        assert_eq!(parsed.labels["text"], "a\"b\\c\nd, e=");
        assert_eq!((parsed.labels["x"].as_str(), parsed.value), ("1", 7.0));
        assert_eq!(sample("# EOF"), None);
    }
}
