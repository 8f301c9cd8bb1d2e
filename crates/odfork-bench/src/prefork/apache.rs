//! Apache's prefork server: its configuration, and one request on a connection of its own.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;

use super::service::{Launch, Server, Service};
use crate::foreign::open_loop::{self, Schedule, Slice};
use crate::foreign::{found, free_port};

const PROGRAM: &str = "/usr/sbin/apache2";
const MODULES: &str = "/usr/lib/apache2/modules";
const TIMEOUT: Duration = Duration::from_secs(30);
/// Connections that wait for the end of a request, and in what time so many begin or end: the
/// server then forks about so many children, and ends them again one in a second.
const HELD: usize = 12;
const HOLD: Duration = Duration::from_millis(1200);
const REQUEST: &[u8] = b"GET /page.txt HTTP/1.0\r\nHost: localhost\r\n\r\n";
/// Of the page that is asked for.
const BYTES: u32 = 16 << 10;

pub fn tools() -> Result<PathBuf> {
    found(Path::new(PROGRAM), "the Debian package apache2-bin")
}

pub struct Apache {
    service: Service,
    address: SocketAddr,
    page: Vec<u8>,
}

pub fn start(launch: &Launch) -> Result<Apache, String> {
    let folder = launch.folder;
    let said = |error: std::io::Error| format!("{}: {error}", folder.display());
    let port = free_port()?;
    // A text whose every line differs, so that a wrong page is told from the right one.
    let lines = (0..).map(|line: u32| format!("{line} {}\n", line.wrapping_mul(2_654_435_761)));
    let page: Vec<u8> = lines.flat_map(String::into_bytes).take(BYTES as usize).collect();
    fs::create_dir_all(folder.join("www")).map_err(said)?;
    fs::write(folder.join("www/page.txt"), &page).map_err(said)?;
    let is_root = rustix::process::geteuid().is_root();
    let file = folder.join("apache2.conf");
    fs::write(&file, configuration(folder, port, is_root)).map_err(said)?;
    let mut command = launch.command(launch.tools);
    command.arg("-f").arg(&file).args(["-D", "FOREGROUND"]);
    let service = Service::start(command, folder.join("log"), None, libc::SIGTERM)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut apache = Apache { service, address, page };
    apache.service.wait_until(|| request(address, &apache.page).is_ok())?;
    Ok(apache)
}

/// The server looks once a second for how many children it needs. `MaxConnectionsPerChild` would
/// let all of them end at once, since they take connections in turn, and requests would wait for
/// that second, whatever a fork costs. So more children are needed and fewer again, by `HELD`.
fn configuration(folder: &Path, port: u16, is_root: bool) -> String {
    let dir = folder.display();
    // Root's children become somebody else.
    let user = if is_root { "User www-data\nGroup www-data\n" } else { "" };
    format!(
        "ServerName localhost\nServerRoot {dir}\nDefaultRuntimeDir {dir}\nPidFile {dir}/pid\n\
         Listen 127.0.0.1:{port}\nErrorLog {dir}/error.log\nDocumentRoot {dir}/www\n\
         LoadModule mpm_prefork_module {MODULES}/mod_mpm_prefork.so\n\
         LoadModule authz_core_module {MODULES}/mod_authz_core.so\n\
         KeepAlive Off\nStartServers 24\nMinSpareServers 24\nMaxSpareServers 25\n\
         MaxRequestWorkers 128\nMaxConnectionsPerChild 0\n{user}"
    )
}

fn request(address: SocketAddr, page: &[u8]) -> Result<(), String> {
    receive(send(address, REQUEST), page)
}

fn send(address: SocketAddr, text: &[u8]) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(text)?;
    Ok(stream)
}

/// The page, every byte.
fn receive(sent: std::io::Result<TcpStream>, page: &[u8]) -> Result<(), String> {
    let mut answer = Vec::with_capacity(page.len() + 1024);
    let ask = || sent?.read_to_end(&mut answer);
    ask().map_err(|error| format!("a request failed: {error}"))?;
    let head = String::from_utf8_lossy(&answer[..answer.len().min(60)]).into_owned();
    let is_right = head.starts_with("HTTP/1.1 200 ") && answer.ends_with(page);
    let body = answer.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
    match is_right && body.is_some_and(|at| answer.len() - at == page.len()) {
        true => Ok(()),
        false => Err(format!("a wrong answer of {} bytes: {head:?}", answer.len())),
    }
}

impl Apache {
    /// Begins requests one after the other, then ends them one after the other, and so on. At once
    /// they would be what the slowest of the other requests wait for.
    fn hold(&self, is_over: &AtomicBool) -> Result<(), String> {
        let (begin, end) = REQUEST.split_at(REQUEST.len() - 2);
        while !is_over.load(Ordering::Relaxed) {
            let mut held = Vec::new();
            while held.len() < HELD && !is_over.load(Ordering::Relaxed) {
                held.push(send(self.address, begin));
                wait(is_over);
            }
            for sent in held {
                let sent = sent.and_then(|mut stream| stream.write_all(end).map(|()| stream));
                receive(sent, &self.page)?;
                wait(is_over);
            }
        }
        Ok(())
    }
}

/// The pause between two of them.
fn wait(is_over: &AtomicBool) {
    if !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(HOLD / HELD as u32);
    }
}

impl Server for Apache {
    fn load(&mut self, schedule: Schedule) -> Result<Slice, String> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let held = scope.spawn(|| self.hold(&is_over));
            let slice = open_loop::run(schedule, || request(self.address, &self.page));
            is_over.store(true, Ordering::Relaxed);
            let held = held.join().unwrap_or_else(|_| Err("a client panicked".into()));
            held.and(slice)
        })
    }

    fn check(&mut self) -> Result<(), String> {
        let log = self.service.said();
        match self.service.is_alive() {
            true => request(self.address, &self.page),
            false => Err(format!("the server is lost; it said: {log}")),
        }
    }

    fn pid(&self) -> i32 {
        self.service.pid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// What `request` says to an answer.
    fn said(answer: &'static [u8]) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 512];
            let _ = stream.read(&mut buffer).unwrap();
            stream.write_all(answer).unwrap();
        });
        let result = request(address, b"page");
        server.join().unwrap();
        result
    }

    #[test]
    fn only_the_page_with_status_200_is_right() {
        assert_eq!(said(b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\npage"), Ok(()));
        for wrong in [
            &b"HTTP/1.1 503 Busy\r\n\r\npage"[..],
            b"HTTP/1.1 200 OK\r\n\r\npag",
            b"HTTP/1.1 200 OK\r\n\r\nxpage",
            b"",
        ] {
            assert!(said(wrong).is_err(), "{wrong:?}");
        }
    }
}
