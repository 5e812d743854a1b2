//! `hipvit top`: what a server is doing, from its metrics.

mod rates;
mod view;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use self::rates::{Rates, Snapshot};
use super::errors::with_causes;
use super::{Outcome, output};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The server
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:8000")]
    url: String,
    /// Time between two readings
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = interval)]
    interval: f64,
    /// Print one reading and exit (the default if the output is not a terminal)
    #[arg(long)]
    once: bool,
    /// File with the bearer token that the server requires
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// Maximum bytes of an answer: a server with thousands of models has less.
const MAX_ANSWER: usize = 16 << 20;

/// Maximum number of characters of an error page that are repeated.
const SHOWN: usize = 500;

/// The time that a server has for its answer.
const TIMEOUT: Duration = Duration::from_secs(10);

fn interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        Ok(_) => Err("must be from 0.1 to 3600".into()),
        Err(e) => Err(e.to_string()),
    }
}

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        let server = Server::new(&self.url, self.token_file.as_ref())?;
        let interval = Duration::from_secs_f64(self.interval);
        if self.once || !io::stdout().is_terminal() {
            let before = server.read()?;
            std::thread::sleep(interval);
            let rates = Rates::between(&before, &server.read()?);
            let mut out = output::stdout();
            write!(out, "{}", view::text(&rates))?;
            out.flush()?;
            return Ok(Outcome::Complete);
        }
        // Before the terminal is taken, so that an error is printed as any other.
        let first = server.read()?;
        let mut terminal = ratatui::try_init().context("the terminal cannot be used")?;
        let shown = show(&mut terminal, &server, first, interval);
        ratatui::restore();
        shown.map(|()| Outcome::Complete)
    }
}

/// Draws until the user ends it.
fn show(
    terminal: &mut ratatui::DefaultTerminal,
    server: &Server,
    first: Snapshot,
    interval: Duration,
) -> Result<()> {
    let mut before = first;
    let mut rates = Rates::between(&before, &before);
    let mut failure = None;
    loop {
        terminal.draw(|frame| view::draw(frame, &server.url, &rates, failure.as_deref()))?;
        if quit_within(interval)? {
            return Ok(());
        }
        // A server that is restarted comes back.
        match server.read() {
            Ok(now) => {
                rates = Rates::between(&before, &now);
                before = now;
                failure = None;
            }
            Err(error) => failure = Some(with_causes(&error)),
        }
    }
}

/// Waits; whether the user has pressed q, Esc or Ctrl-C meanwhile.
fn quit_within(time: Duration) -> Result<bool> {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if !event::poll(left)? {
            return Ok(false);
        }
        match event::read()? {
            Event::Key(key) => {
                let interrupt =
                    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return Ok(true);
                }
            }
            Event::Resize(..) => return Ok(false),
            _ => {}
        }
    }
}

/// Where the metrics are.
struct Server {
    url: String,
    host: String,
    token: Option<String>,
    runtime: Runtime,
}

impl Server {
    fn new(url: &str, token_file: Option<&PathBuf>) -> Result<Self> {
        let Some(host) = url.strip_prefix("http://") else {
            bail!("{url}: the URL must begin with http:// (a server with TLS is read by its Prometheus)");
        };
        let host = host.split('/').next().unwrap_or_default();
        let host = match host.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => host.to_owned(),
            _ => format!("{host}:80"),
        };
        let read = |path: &PathBuf| super::serve::read_token(path);
        Ok(Self {
            url: url.to_owned(),
            host,
            token: token_file.map(read).transpose()?,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?,
        })
    }

    fn read(&self) -> Result<Snapshot> {
        let text = self.runtime.block_on(async {
            match tokio::time::timeout(TIMEOUT, self.fetch()).await {
                Ok(text) => text,
                Err(_) => bail!("no answer within {TIMEOUT:?}"),
            }
        });
        let text = text.with_context(|| self.url.clone())?;
        let snapshot = Snapshot::parse(&text, Instant::now());
        if !snapshot.is_of_hipvit() {
            bail!(
                "{}: /metrics has no metric of hipvit: another program answers at this address",
                self.url
            );
        }
        Ok(snapshot)
    }

    async fn fetch(&self) -> Result<String> {
        let stream = TcpStream::connect(&self.host).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = Request::get("/metrics").header("host", &self.host);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|error| anyhow!("the answer to /metrics cannot be read: {error}"))?;
        let body = body.to_bytes();
        let text = String::from_utf8_lossy(&body);
        if !status.is_success() {
            let shown: String = text.trim().chars().take(SHOWN).collect();
            bail!("answers {status} to /metrics: {shown}");
        }
        Ok(text.into_owned())
    }
}
