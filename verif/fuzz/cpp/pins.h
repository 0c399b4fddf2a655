// What is on the accelerator's ports in one cycle, and the random numbers that the models draw.
#pragma once
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "tables.h"

// A violation; the case ends with it. `kind` is one word, the same for the same cause.
struct Finding : std::runtime_error {
    std::string kind;
    Finding(const std::string& kind, const std::string& text)
        : std::runtime_error(text), kind(kind) {}
};

// Vigna's SplitMix64.
class Random {
    uint64_t state;

   public:
    explicit Random(uint64_t seed) : state(seed) {}
    uint64_t next() {
        uint64_t z = (state += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    // From 0 to limit - 1.
    uint64_t below(uint64_t limit) { return next() % limit; }
    // True `share` times out of 256.
    bool chance(unsigned share) { return (next() & 255) < share; }
};

struct Address {
    uint64_t addr;
    uint8_t id, len, size, burst, lock, cache, prot, qos;
    bool operator==(const Address& o) const {
        return addr == o.addr && id == o.id && len == o.len && size == o.size &&
               burst == o.burst && lock == o.lock && cache == o.cache && prot == o.prot &&
               qos == o.qos;
    }
};

struct WriteBeat {
    uint8_t data[BEAT_BYTES];
    uint64_t strb;
    bool last;
    bool operator==(const WriteBeat& o) const {
        return strb == o.strb && last == o.last && !memcmp(data, o.data, BEAT_BYTES);
    }
};

struct ReadBeat {
    uint8_t data[BEAT_BYTES];
    uint8_t id, resp;
    bool last;
};

struct Pins {
    bool rst;
    // The memory bus: what the accelerator drives, then what the slave drives.
    bool awvalid, wvalid, arvalid, bready, rready;
    Address aw, ar;
    WriteBeat w;
    bool awready, wready, arready, bvalid, rvalid;
    uint8_t bid, bresp;
    ReadBeat r;
    // The register bus.
    bool l_awvalid, l_wvalid, l_bready, l_arvalid, l_rready;
    bool l_awready, l_wready, l_bvalid, l_arready, l_rvalid;
    uint8_t l_bresp, l_rresp;
    uint32_t l_rdata;
    bool irq;
};
