// Rules of AXI4 and AXI4-Lite, and of the memory window, for everything the accelerator drives.
#pragma once
#include <cstdarg>
#include <cstdio>
#include <deque>

#include "pins.h"

inline std::string format(const char* text, ...) {
    char buffer[400];
    va_list arguments;
    va_start(arguments, text);
    vsnprintf(buffer, sizeof buffer, text, arguments);
    va_end(arguments);
    return buffer;
}

struct Window {
    uint64_t base = 0, size = 0;
    bool has(uint64_t address) const { return address >= base && address - base < size; }
    // Whether the first and the last beat of a burst have a byte in it.
    bool holds(uint64_t address, uint64_t bytes) const {
        return has(address) && address - base + bytes - BEAT_BYTES < size;
    }
};

class Checker {
    Pins before{};
    bool have_before = false;
    std::deque<unsigned> due;     // beats, minus one, of write bursts whose address has come
    std::deque<unsigned> early;   // the same of bursts whose data came first
    unsigned beats = 0;           // of the write burst under way
    unsigned reads[READ_IDS] = {}, writes[WRITE_IDS] = {};
    unsigned writes_owed = 0, reads_owed = 0;  // answers on the register bus
    bool l_address = false, l_data = false;

    [[noreturn]] static void fail(const char* kind, const std::string& text) {
        throw Finding(kind, text);
    }

    void address(const char* name, const Address& a, unsigned ids) {
        if (a.burst != 1) fail("axi-burst", format("%sBURST is %u", name, a.burst));
        if (a.size != BEAT_SIZE) fail("axi-size", format("%sSIZE is %u", name, a.size));
        if (a.len >= MAX_BEATS) fail("axi-len", format("%sLEN is %u", name, a.len));
        if (a.lock) fail("axi-lock", format("%sLOCK is %u", name, a.lock));
        if (a.cache != AX_CACHE || a.qos != 0)
            fail("axi-attributes", format("%sCACHE is %u, %sQOS %u", name, a.cache, name, a.qos));
        if (a.prot != AX_PROT) fail("axi-prot", format("%sPROT is %u", name, a.prot));
        if (a.id >= ids) fail("axi-id", format("%sID is %u of %u", name, a.id, ids));
        if (a.addr % BEAT_BYTES)
            fail("axi-aligned", format("%sADDR is %#llx", name, (unsigned long long)a.addr));
        uint64_t bytes = (a.len + 1) * uint64_t(BEAT_BYTES);
        if (a.addr % 4096 + bytes > 4096)
            fail("axi-4k", format("%u beats from %#llx cross 4 KiB", a.len + 1,
                                  (unsigned long long)a.addr));
        // Whole beats are read and written: the first and the last must have a byte of the window.
        if (!running) fail("axi-idle", format("%sVALID, but no program runs", name));
        if (!window.holds(a.addr, bytes) && !former.holds(a.addr, bytes))
            fail(name[1] == 'R' ? "window-read" : "window-write",
                 format("%s: %u beats from %#llx, the window is %#llx bytes from %#llx", name,
                        a.len + 1, (unsigned long long)a.addr, (unsigned long long)window.size,
                        (unsigned long long)window.base));
        if (name[1] == 'R' && a.id == 0 && !program.holds(a.addr, bytes) && !former.size)
            fail("window-fetch", format("%u beats from %#llx are not in the program", a.len + 1,
                                        (unsigned long long)a.addr));
    }

    void stable(const Pins& p) {
        if (before.awvalid && !before.awready && !(p.awvalid && p.aw == before.aw))
            fail("axi-stable", "AW changes before AWREADY");
        if (before.wvalid && !before.wready && !(p.wvalid && p.w == before.w))
            fail("axi-stable", "W changes before WREADY");
        if (before.arvalid && !before.arready && !(p.arvalid && p.ar == before.ar))
            fail("axi-stable", "AR changes before ARREADY");
        if (before.l_bvalid && !before.l_bready &&
            !(p.l_bvalid && p.l_bresp == before.l_bresp))
            fail("lite-stable", "B of the registers changes before BREADY");
        if (before.l_rvalid && !before.l_rready &&
            !(p.l_rvalid && p.l_rresp == before.l_rresp && p.l_rdata == before.l_rdata))
            fail("lite-stable", "R of the registers changes before RREADY");
    }

    void taken(const Pins& p) {
        if (p.arvalid && p.arready) {
            if (++reads[p.ar.id] > READ_LIMIT[p.ar.id] && counting)
                fail("axi-outstanding", format("%u reads of ID %u", reads[p.ar.id], p.ar.id));
        }
        if (p.rvalid && p.rready && p.r.last && p.r.id < READ_IDS && reads[p.r.id])
            reads[p.r.id]--;
        if (p.awvalid && p.awready) {
            if (++writes[p.aw.id] > WRITE_LIMIT[p.aw.id] && counting)
                fail("axi-outstanding", format("%u writes of ID %u", writes[p.aw.id], p.aw.id));
            if (early.empty()) {
                due.push_back(p.aw.len);
            } else {
                if (early.front() != p.aw.len)
                    fail("axi-wlast", format("%u beats for AWLEN %u", early.front() + 1, p.aw.len));
                early.pop_front();
            }
        }
        if (p.bvalid && p.bready && p.bid < WRITE_IDS && writes[p.bid]) writes[p.bid]--;
        if (p.wvalid && p.wready) {
            // The address of a burst may be on the bus, not yet taken, when its data comes.
            if (!due.empty() && p.w.last != (beats == due.front()))
                fail("axi-wlast", format("WLAST %u in beat %u of %u", p.w.last, beats + 1,
                                         due.front() + 1));
            if (beats >= MAX_BEATS) fail("axi-wlast", "WLAST never comes");
            if (p.w.last) {
                if (due.empty())
                    early.push_back(beats);
                else
                    due.pop_front();
                beats = 0;
            } else {
                beats++;
            }
        }
    }

    void registers(const Pins& p) {
        if (p.l_bvalid && !writes_owed) fail("lite-response", "B of the registers without a write");
        if (p.l_rvalid && !reads_owed) fail("lite-response", "R of the registers without a read");
        if (p.l_bvalid && p.l_bready) writes_owed--;
        if (p.l_rvalid && p.l_rready) reads_owed--;
        l_address |= p.l_awvalid && p.l_awready;
        l_data |= p.l_wvalid && p.l_wready;
        if (l_address && l_data) writes_owed++, l_address = l_data = false;
        if (p.l_arvalid && p.l_arready) reads_owed++;
    }

   public:
    Window program;               // what the fetch may read
    Window window, former;        // of the run, and of one whose requests are still on the bus
    bool running = false;         // requests are legal
    bool counting = true;         // the slave answers what was asked for, and nothing else

    // After reset, and for as long as it lasts.
    void reset() {
        have_before = false;
        due.clear(), early.clear();
        beats = 0;
        writes_owed = reads_owed = 0;
        l_address = l_data = false;
        memset(reads, 0, sizeof reads), memset(writes, 0, sizeof writes);
    }

    void observe(const Pins& p) {
        if (p.rst) return;
        if (have_before) stable(p);
        if (p.awvalid) address("AW", p.aw, WRITE_IDS);
        if (p.arvalid) address("AR", p.ar, READ_IDS);
        if (p.wvalid && !running) fail("axi-idle", "WVALID, but no program runs");
        taken(p);
        registers(p);
        before = p, have_before = true;
    }

    // Every strobed byte of the beat at `address` must lie in the window.
    void strobes(uint64_t address, const WriteBeat& beat) const {
        for (unsigned i = 0; i < BEAT_BYTES; i++)
            if (beat.strb >> i & 1) {
                uint64_t place = address + i;
                if (!window.has(place) && !former.has(place))
                    fail("window-write",
                         format("byte %#llx is written, the window is %#llx bytes from %#llx",
                                (unsigned long long)place, (unsigned long long)window.size,
                                (unsigned long long)window.base));
            }
    }

    // Nothing may be owed when a run has ended.
    void ended(const Pins& p) const {
        if (p.awvalid || p.wvalid || p.arvalid) fail("axi-idle", "a request when BUSY has fallen");
        if (!due.empty() || !early.empty() || beats)
            fail("axi-owed", "write data and addresses do not match at the end of the run");
        for (unsigned id = 0; id < READ_IDS; id++)
            if (reads[id] && counting)
                fail("axi-owed", format("%u reads of ID %u at the end of the run", reads[id], id));
        for (unsigned id = 0; id < WRITE_IDS; id++)
            if (writes[id] && counting)
                fail("axi-owed", format("%u writes of ID %u at the end of the run", writes[id], id));
    }
};
