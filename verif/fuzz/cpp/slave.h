// An AXI4 slave that does whatever the protocol allows, as the case's numbers say.
#pragma once
#include <deque>

#include "checker.h"
#include "memory.h"

class Slave {
    struct Read {
        uint64_t addr, due;
        unsigned len, beat;
        int bad_beat;  // -1: none, -2: all
        uint8_t resp;
        std::vector<uint8_t> early;
    };
    struct Write {
        uint64_t addr;
        uint8_t id;
        unsigned len;
    };
    struct Burst {
        std::vector<WriteBeat> beats;
    };
    struct Response {
        uint64_t due;
        uint8_t resp;
        Write write;
        Burst burst;
        bool applied;
    };

    Memory& memory;
    const Checker& checker;
    Random random{1};
    SlaveFields p{};
    std::deque<Read> reads[READ_IDS];
    std::deque<Write> addresses;
    std::deque<Burst> bursts;
    Burst incoming;
    std::deque<Response> responses[WRITE_IDS];
    uint64_t complete = 0, accepted = 0;  // bursts whose data, whose addresses have come
    uint64_t cycle = 0;
    int streak = -1;  // ID whose burst goes on
    // On the bus; held until they are taken.
    bool bvalid = false, rvalid = false;
    uint8_t bid = 0, bresp = 0;
    ReadBeat r{};
    bool saw_arvalid = false, saw_awvalid = false;

    uint64_t latency(uint32_t low, uint32_t high) {
        return cycle + 1 + low + (high > low ? random.below(high - low + 1) : 0);
    }

    void apply(Response& response) {
        if (response.applied) return;
        response.applied = true;
        uint64_t address = response.write.addr;
        for (auto& beat : response.burst.beats) {
            checker.strobes(address, beat);
            uint8_t* bytes = memory.at(address);
            for (unsigned i = 0; i < BEAT_BYTES; i++)
                if (beat.strb >> i & 1) bytes[i] = beat.data[i];
            address += BEAT_BYTES;
        }
    }

    // Addresses and data that have both come become a response that is due some time.
    void match() {
        while (!addresses.empty() && !bursts.empty()) {
            Write write = addresses.front();
            auto& queue = responses[write.id];
            Response response{latency(p.write_low, p.write_high), 0, write, bursts.front(), false};
            if (!queue.empty() && response.due < queue.back().due) response.due = queue.back().due;
            if (errors && random.below(65536) < p.write_errors) {
                response.resp = 1 + random.below(3);
            }
            if (!p.late_writes) apply(response);
            queue.push_back(std::move(response));
            addresses.pop_front();
            bursts.pop_front();
        }
    }

   public:
    bool dead = false;    // takes nothing and answers nothing
    bool errors = false;  // EXOKAY, SLVERR and DECERR, as often as the case says
    uint64_t read_errors = 0, write_errors = 0, fetch_errors = 0;  // that have been answered
    uint64_t strayed = 0;  // answers that nobody has asked for

    Slave(Memory& memory, const Checker& checker) : memory(memory), checker(checker) {}

    void configure(const SlaveFields& fields) {
        p = fields;
        random = Random(fields.seed);
    }

    void power_on() {
        for (auto& queue : reads) queue.clear();
        for (auto& queue : responses) queue.clear();
        bvalid = rvalid = dead = false;
        streak = -1;
        drop_partial();
    }

    // The master was reset: what it has not sent to the end will never come.
    void drop_partial() {
        addresses.clear(), bursts.clear();
        incoming.beats.clear();
        complete = accepted = 0;
        saw_arvalid = saw_awvalid = false;
    }

    unsigned outstanding() const {
        unsigned count = addresses.size() + bursts.size() + !incoming.beats.empty();
        for (auto& queue : reads) count += queue.size();
        for (auto& queue : responses) count += queue.size();
        return count + rvalid + bvalid;
    }

    // An answer that nobody waits for, on one of the two channels.
    void stray() {
        unsigned id = random.below(ID_VALUES);
        if (random.below(2)) {
            if (rvalid || streak >= 0 || saw_arvalid || (id < READ_IDS && !reads[id].empty())) return;
            r.id = id, r.resp = random.below(4), r.last = random.below(4) != 0;
            rvalid = true;
        } else {
            if (bvalid || (id < WRITE_IDS && (!responses[id].empty() || owes(id)))) return;
            bid = id, bresp = random.below(4);
            bvalid = true;
        }
        strayed++;
    }

    // Whether a write of this ID may be on its way.
    bool owes(unsigned id) const {
        for (auto& write : addresses)
            if (write.id == id) return true;
        return !bursts.empty() || !incoming.beats.empty() || saw_awvalid;
    }

    // Decide what is on the bus in this cycle.
    void drive(Pins& pins) {
        pins.awready = pins.wready = pins.arready = false;
        if (!dead) {
            pins.arready = random.chance(p.ready_ar);
            pins.awready = random.chance(p.ready_aw) && accepted < complete + 64;
            pins.wready = random.chance(p.ready_w);
            if (p.order == ORDER_DATA_FIRST && accepted >= complete) pins.awready = false;
            if (p.order == ORDER_ADDRESS_FIRST && complete >= accepted) pins.wready = false;
            if (p.order == ORDER_DATA_FIRST && complete > accepted) pins.wready = false;
            if (!rvalid && !random.chance(p.gap_r)) next_read();
            if (!bvalid && !random.chance(p.gap_b)) next_response();
        }
        if (errors && p.strays && !dead && random.below(65536) < p.strays) stray();
        pins.rvalid = rvalid, pins.r = r;
        pins.bvalid = bvalid, pins.bid = bid, pins.bresp = bresp;
    }

    void next_read() {
        unsigned ready[READ_IDS], count = 0;
        for (unsigned id = 0; id < READ_IDS; id++)
            if (!reads[id].empty() && reads[id].front().due <= cycle) ready[count++] = id;
        if (!count) return;
        unsigned id = ready[random.below(count)];
        if (streak >= 0) {
            if (!p.interleave) id = streak;
            if (reads[id].empty()) return;
        }
        Read& burst = reads[id].front();
        if (p.early_reads)
            memcpy(r.data, &burst.early[burst.beat * BEAT_BYTES], BEAT_BYTES);
        else
            memcpy(r.data, memory.at(burst.addr + burst.beat * BEAT_BYTES), BEAT_BYTES);
        bool bad = burst.bad_beat == -2 || burst.bad_beat == int(burst.beat);
        r.id = id, r.resp = bad ? burst.resp : 0, r.last = burst.beat == burst.len;
        rvalid = true;
        streak = r.last ? -1 : int(id);
        if (r.last)
            reads[id].pop_front();
        else
            burst.beat++;
    }

    void next_response() {
        unsigned ready[WRITE_IDS], count = 0;
        for (unsigned id = 0; id < WRITE_IDS; id++)
            if (!responses[id].empty() && responses[id].front().due <= cycle) ready[count++] = id;
        if (!count) return;
        bid = ready[random.below(count)];
        Response& response = responses[bid].front();
        apply(response);
        bresp = response.resp;
        bvalid = true;
        responses[bid].pop_front();
    }

    // What has been taken in this cycle.
    void sample(const Pins& pins) {
        if (pins.rvalid && pins.rready) {
            rvalid = false;
            if (r.resp) (r.id ? read_errors : fetch_errors)++;
        }
        if (pins.bvalid && pins.bready) {
            bvalid = false;
            write_errors += bresp != 0;
        }
        if (!pins.rst) {
            if (pins.arvalid && pins.arready) take_read(pins.ar);
            if (pins.awvalid && pins.awready) {
                addresses.push_back({pins.aw.addr, pins.aw.id, pins.aw.len});
                accepted++;
            }
            if (pins.wvalid && pins.wready) {
                incoming.beats.push_back(pins.w);
                if (pins.w.last) {
                    bursts.push_back(std::move(incoming));
                    incoming = Burst();
                    complete++;
                }
            }
            match();
        }
        saw_arvalid = pins.arvalid, saw_awvalid = pins.awvalid;
        cycle++;
    }

    void take_read(const Address& ar) {
        Read burst{ar.addr, latency(p.read_low, p.read_high), ar.len, 0, -1, 0, {}};
        auto& queue = reads[ar.id];
        if (!queue.empty() && burst.due < queue.back().due) burst.due = queue.back().due;
        if (errors && random.below(65536) < p.read_errors) {
            burst.bad_beat = random.below(4) ? -2 : int(random.below(ar.len + 1));
            burst.resp = 1 + random.below(3);
        }
        if (p.early_reads) {
            burst.early.resize((ar.len + 1) * BEAT_BYTES);
            for (unsigned beat = 0; beat <= ar.len; beat++)
                memcpy(&burst.early[beat * BEAT_BYTES], memory.at(ar.addr + beat * BEAT_BYTES),
                       BEAT_BYTES);
        }
        queue.push_back(std::move(burst));
    }
};
