//! What `odfork page status` shows, as JSON with stable keys.
//!
//! The keys keep their first spelling where the code has other words since: `loop` is the active
//! list, `order_point` the low watermark, `knobs` the tunables.

use odfork_policy::clock::OwnerState;
use serde_json::{json, Value};

use super::client::Client;
use super::Daemon;
use crate::sys;

impl Daemon {
    /// Everything `odfork page status` shows. Sizes in pages of 4096 bytes unless the name says
    /// bytes.
    pub fn status(&self) -> Value {
        let state = self.lock();
        let clock = &state.clock;
        let counts = clock.counts();
        let (used, most) = self.store.usage();
        let programs: Vec<Value> = state
            .clients
            .iter()
            .enumerate()
            .filter_map(|(owner, client)| Some((owner as u32, client.as_ref()?)))
            .map(|(owner, client)| program(client, clock.owner_state(owner)))
            .collect();
        let tunables: serde_json::Map<String, Value> = self
            .tunables
            .list()
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        json!({
            "schema": 1,
            "uptime_ns": sys::now_ns() - self.began_ns,
            "limit_bytes": self.settings.limit,
            "frames": clock.frames(), "loop": clock.active_len(), "pool": clock.pool_len(),
            "leaving": clock.leaving(), "order_point": clock.order().0,
            "scan_rate": clock.scan_rate(), "reclaim_cost_ns": self.reclaim_ns,
            "starved_now": state.starved.len(),
            "refaults": state.refaults, "to_clean": state.to_clean.len(),
            "store_full_now": state.full_since_ns != 0,
            "store": {
                "medium": format!("{:?}", self.store.medium()).to_lowercase(),
                "compress": self.store.codec().name(), "used_bytes": used, "most_bytes": most,
            },
            "clock": {
                "scanned": counts.scanned, "zapped": counts.zapped, "left": counts.left,
                "reclaims_loop": counts.reclaims_active, "reclaims_pool": counts.reclaims_pool,
                "prefetch_used": counts.prefetch_used, "prefetch_wasted": counts.prefetch_wasted,
                "evicted": counts.evicted, "cleaned": counts.cleaned,
            },
            "totals": self.stats.to_json(),
            "knobs": tunables,
            "programs": programs,
        })
    }
}

fn program(client: &Client, owner: OwnerState) -> Value {
    let mapped: u64 = client.places().iter().map(|span| span.len / 4096).sum();
    json!({
        "pid": client.pid, "name": client.name, "id": client.id,
        "regions": client.places().len(), "mapped": mapped,
        "resident": owner.resident, "reclaimable": owner.pooled,
        "anomalous": owner.anomalous, "swapped_out": client.out.is_some(),
        "faults": client.counts.faults, "page_ins": client.counts.reads,
        "zero_fills": client.counts.zeros, "reclaims": client.counts.reclaims,
        "waits": client.counts.waits, "stops": client.counts.stops,
        "waiting": client.parked.len(), "block": client.streams.block(),
        "frozen": client.is_frozen(), "to_zap": client.zaps.len() + client.sent.len(),
    })
}
