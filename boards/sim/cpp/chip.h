// Model of an SDR SDRAM chip, 16 bits wide, four banks, bursts of two, with the checks of its data sheet.
// chip_times.h holds its geometry and times in cycles (boards/sim/program.py writes it).
#pragma once
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "chip_times.h"

struct ChipPins {
    bool cke, cs_n, ras_n, cas_n, we_n;
    unsigned ba, a, dqm;
    uint16_t dq;
    bool dq_driven;  // by the controller
};

class Chip {
    static constexpr uint64_t LONG_AGO = 1u << 20, NEVER = 0;
    static constexpr unsigned BANKS = 4, BURST = 2, SLOTS = 16;

    struct Bank {
        bool open = false;
        unsigned row = 0;
        uint64_t activated = NEVER, closed = NEVER, written = NEVER, read = NEVER;
    };

    std::vector<uint16_t> words;
    Bank banks[BANKS];
    // Cycle 0 is long ago, so that no distance is short.
    uint64_t now = LONG_AGO;
    uint64_t activated = NEVER, refreshed = NEVER, moded = NEVER, columned = NEVER;
    bool any_command = false, precharged = false, mode_set = false;
    unsigned refreshes = 0, excused = 0, cas = 0;
    uint64_t first_refresh = 0;
    // Of a write that has begun: the second transfer.
    bool second_write = false;
    unsigned second_address = 0;
    // What is sent in a cycle, and whether the chip drives its pins, or may.
    struct Slot {
        bool valid = false, drives = false;
        uint16_t data = 0;
    };
    Slot slots[SLOTS];
    unsigned masks[3] = {};

    Slot& slot(uint64_t cycle) { return slots[cycle % SLOTS]; }

    void violation(const char* rule, const char* text, ...) {
        if (!violations++) {
            va_list arguments;
            char line[256];
            va_start(arguments, text);
            vsnprintf(line, sizeof line, text, arguments);
            va_end(arguments);
            first = std::string(rule) + " in SDRAM cycle " + std::to_string(cycle()) + ": " + line;
        }
        by_rule[rule]++;
    }

    void at_least(const char* rule, uint64_t since, unsigned cycles) {
        if (now - since < cycles)
            violation(rule, "%u cycles, at least %u are needed", unsigned(now - since), cycles);
    }

    unsigned place(unsigned bank, unsigned row, unsigned column) const {
        return ((row << 2 | bank) << COLUMN_WIDTH) | column;
    }

    void write(unsigned address, const ChipPins& pins) {
        if (!pins.dq_driven) violation("bus", "nobody drives the data of a WRITE");
        uint16_t keep = (pins.dqm & 1 ? 0x00ff : 0) | (pins.dqm & 2 ? 0xff00 : 0);
        words[address] = (words[address] & keep) | (pins.dq & ~keep);
    }

    void activate(const ChipPins& pins) {
        Bank& bank = banks[pins.ba];
        if (bank.open) violation("order", "ACTIVATE of bank %u, which is open", pins.ba);
        if (!mode_set || refreshes < 2) violation("initialisation", "ACTIVATE before its end");
        at_least("tRP", bank.closed, T_RP);
        at_least("tRC", bank.activated, T_RC);
        at_least("tRRD", activated, T_RRD);
        if (pins.a >> ROW_WIDTH) violation("order", "row %u does not exist", pins.a);
        bank.open = true;
        bank.row = pins.a & ((1u << ROW_WIDTH) - 1);
        bank.activated = activated = now;
    }

    void close(unsigned number) {
        Bank& bank = banks[number];
        if (bank.open) {
            at_least("tRAS", bank.activated, T_RAS);
            if (now - bank.activated > T_RAS_MOST)
                violation("tRAS", "bank %u was open for %u cycles, at most %u are allowed", number,
                          unsigned(now - bank.activated), T_RAS_MOST);
            at_least("tWR", bank.written, T_WR);
            if (now - bank.read < BURST) violation("order", "PRECHARGE cuts off a READ");
            bank.closed = now;
        }
        bank.open = false;
    }

    void column(const ChipPins& pins, bool is_write) {
        Bank& bank = banks[pins.ba];
        const char* name = is_write ? "WRITE" : "READ";
        if (!bank.open) violation("order", "%s of bank %u, which is closed", name, pins.ba);
        at_least("tRCD", bank.activated, T_RCD);
        if (now - columned < BURST) violation("order", "%s cuts off what is before it", name);
        if (pins.a >> COLUMN_WIDTH)
            violation("order", "%s of column %#x: no such column, or auto precharge", name, pins.a);
        columned = now;
        unsigned number = pins.a & ((1u << COLUMN_WIDTH) - 1);
        unsigned address = place(pins.ba, bank.row, number);
        if (is_write) {
            bank.written = now + 1;
            second_write = true;
            second_address = address ^ 1;
            write(address, pins);
            transfers += 2;
            return;
        }
        bank.read = now;
        for (unsigned i = 0; i < BURST; i++) {
            Slot& s = slot(now + cas + i);
            s.valid = true;
            s.data = words[address ^ i];
        }
        // From the edge before the first transfer to tHZ, 6 ns, behind that of the second.
        for (unsigned i = 0; i < BURST + 2; i++) slot(now + cas - 1 + i).drives = true;
        transfers += 2;
    }

    void refresh() {
        for (unsigned i = 0; i < BANKS; i++) {
            if (banks[i].open) violation("order", "REFRESH while bank %u is open", i);
            at_least("tRP", banks[i].closed, T_RP);
            at_least("tRC", banks[i].activated, T_RC);
        }
        if (!precharged) violation("initialisation", "REFRESH before PRECHARGE of all banks");
        refreshed = now;
        if (!refreshes++) first_refresh = now;
    }

    void set_mode(const ChipPins& pins) {
        for (auto& bank : banks) {
            if (bank.open) violation("order", "MODE REGISTER SET while a bank is open");
            at_least("tRP", bank.closed, T_RP);
        }
        if (!precharged)
            violation("initialisation", "MODE REGISTER SET before PRECHARGE of all banks");
        cas = pins.a >> 4 & 7;
        if ((pins.a & 0xf) != 1 || (pins.a >> 7) != 0 || pins.ba != 0)
            violation("mode", "%#x is not a burst of two, sequential", pins.a);
        if (cas != T_CAS) violation("mode", "CAS latency %u, not %u", cas, T_CAS);
        if (cas < 2 || cas > 3) cas = 2;
        mode_set = true;
        moded = now;
    }

    void command(const ChipPins& pins) {
        unsigned code = pins.ras_n << 2 | pins.cas_n << 1 | pins.we_n;
        if (pins.cs_n || code == 7) return;  // NOP
        if (!any_command) {
            any_command = true;
            if (cycle() < T_INIT)
                violation("initialisation", "the first command after %u cycles, not %u",
                          unsigned(cycle()), T_INIT);
            if (code != 2 || !(pins.a >> 10 & 1))
                violation("initialisation", "the first command is not PRECHARGE of all banks");
        }
        at_least("tRFC", refreshed, T_RFC);
        at_least("tMRD", moded, T_MRD);
        switch (code) {
            case 3: activate(pins); break;
            case 5: column(pins, false); break;
            case 4: column(pins, true); break;
            case 2:
                if (pins.a >> 10 & 1) {
                    for (unsigned i = 0; i < BANKS; i++) close(i), banks[i].closed = now;
                    precharged = true;
                } else {
                    close(pins.ba);
                }
                break;
            case 1: refresh(); break;
            case 0: set_mode(pins); break;
            default: violation("order", "BURST TERMINATE is not used here");
        }
    }

   public:
    uint64_t violations = 0, transfers = 0;
    std::map<std::string, uint64_t> by_rule;
    std::string first;
    // What the controller sees from this edge to the next; garbage if nothing is sent.
    uint16_t dq = 0;

    Chip() : words(size_t(1) << (2 + ROW_WIDTH + COLUMN_WIDTH)) {
        uint32_t x = 0x2545f491;
        for (auto& word : words) {
            x ^= x << 13, x ^= x >> 17, x ^= x << 5;
            word = x;
        }
    }

    uint64_t cycle() const { return now - LONG_AGO; }
    uint8_t* bytes() { return reinterpret_cast<uint8_t*>(words.data()); }
    size_t size() const { return words.size() * 2; }
    unsigned refresh_count() const { return refreshes; }

    // The rising edge of the chip's clock.
    void edge(const ChipPins& pins) {
        // Until the first command it may be low.
        if (!pins.cke && any_command) violation("order", "clock enable is low");
        bool reads = slot(now).drives;
        if (second_write) {
            second_write = false;
            write(second_address, pins);
        }
        if (pins.cke) command(pins);
        // Before this edge and behind it the pins are the chip's.
        if (pins.dq_driven && (reads || slot(now).drives))
            violation("bus", "controller and chip drive the data pins at the same time");
        // Mask bits act on reads two cycles later.
        unsigned masked = masks[1];
        masks[1] = masks[0], masks[0] = pins.dqm;
        Slot& s = slot(now);
        dq = s.valid && !masked ? s.data : uint16_t(now * 0x9e37);
        s = Slot();
        // One refresh every T_REFRESH cycles, from the first on or from when one was due; up to eight
        // may be late. What has been reported is not reported again.
        uint64_t since = refreshes ? first_refresh : LONG_AGO + 2 * T_INIT + 100 * T_REFRESH;
        if (now > since && (now - since) / T_REFRESH > refreshes + excused + 8) {
            violation("refresh", "%u refreshes in %u cycles, one is due every %u", refreshes,
                      unsigned(now - since), T_REFRESH);
            excused += 8;
        }
        now++;
    }

    // One line, for the report.
    std::string report() const {
        std::string text = std::to_string(violations) + (violations == 1 ? " violation" : " violations");
        for (auto& [rule, count] : by_rule) text += ", " + rule + " " + std::to_string(count);
        return violations ? text + "; the first is " + first : text;
    }
};
