// The platform in simulation: the accelerator as a Verilator model, registers through its AXI4-Lite
// port, and DRAM, one burst of each direction at a time, at its AXI4 port.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "Vaccelerator.h"
#include "platform.h"

namespace {

constexpr int kTimeoutCycles = 1000;
constexpr uint8_t kOkay = 0, kDecodeError = 3;

class Simulation {
  public:
    Simulation() : context_(new VerilatedContext), top_(new Vaccelerator{context_.get()})
    {
        top_->rst = 1;
        for (int i = 0; i < 4; i++)
            cycle();
        top_->rst = 0;
    }

    uint32_t read(uint32_t offset)
    {
        top_->s_axil_araddr = offset;
        top_->s_axil_arvalid = 1;
        top_->s_axil_rready = 1;
        wait_for(top_->s_axil_arready, "read address");
        top_->s_axil_arvalid = 0;
        uint32_t value = 0;
        uint8_t response = kOkay;
        wait_for(top_->s_axil_rvalid, "read data", [&] {
            value = top_->s_axil_rdata;
            response = top_->s_axil_rresp;
        });
        top_->s_axil_rready = 0;
        check(response, "read", offset);
        return value;
    }

    void write(uint32_t offset, uint32_t value)
    {
        top_->s_axil_awaddr = offset;
        top_->s_axil_wdata = value;
        top_->s_axil_wstrb = 0xf;
        top_->s_axil_awvalid = 1;
        top_->s_axil_wvalid = 1;
        top_->s_axil_bready = 1;
        for (int i = 0; top_->s_axil_awvalid || top_->s_axil_wvalid; i++) {
            if (i == kTimeoutCycles)
                fail("write");
            top_->eval();
            bool address = top_->s_axil_awready, data = top_->s_axil_wready;
            cycle();
            if (address)
                top_->s_axil_awvalid = 0;
            if (data)
                top_->s_axil_wvalid = 0;
        }
        uint8_t response = kOkay;
        wait_for(top_->s_axil_bvalid, "write response", [&] { response = top_->s_axil_bresp; });
        top_->s_axil_bready = 0;
        check(response, "write", offset);
    }

    uint8_t *memory(uint64_t base, uint32_t bytes)
    {
        if (memory_.size() < base + bytes)
            memory_.resize(base + bytes);
        return memory_.data() + base;
    }

  private:
    [[noreturn]] static void fail(const char *what)
    {
        std::printf("FAIL no handshake on the register port: %s\n", what);
        std::exit(1);
    }

    static void check(uint8_t response, const char *what, uint32_t offset)
    {
        if (response != kOkay) {
            std::printf("FAIL %s of register 0x%03x: response %d\n", what, offset, response);
            std::exit(1);
        }
    }

    template <typename Port, typename Action>
    void wait_for(const Port &port, const char *what, Action action)
    {
        for (int i = 0; i < kTimeoutCycles; i++) {
            top_->eval();
            bool taken = port;
            if (taken)
                action();
            cycle();
            if (taken)
                return;
        }
        fail(what);
    }

    template <typename Port> void wait_for(const Port &port, const char *what)
    {
        wait_for(port, what, [] {});
    }

    bool exists(uint64_t address) const { return address + ADAGP_BEAT_BYTES <= memory_.size(); }

    // One clock cycle. The slave's outputs depend on its state only; it samples the accelerator's
    // in front of the rising edge, as the accelerator samples the slave's.
    void cycle()
    {
        top_->m_axi_arready = !reading_;
        top_->m_axi_rvalid = reading_;
        top_->m_axi_rid = read_id_;
        top_->m_axi_rlast = read_left_ == 0;
        top_->m_axi_rresp = exists(read_address_) ? kOkay : kDecodeError;
        if (reading_ && exists(read_address_))
            std::memcpy(&top_->m_axi_rdata, &memory_[read_address_], ADAGP_BEAT_BYTES);
        top_->m_axi_awready = !writing_ && !responding_;
        top_->m_axi_wready = writing_;
        top_->m_axi_bvalid = responding_;
        top_->m_axi_bid = write_id_;
        top_->m_axi_bresp = write_response_;
        top_->clk = 0;
        top_->eval();
        if (top_->rst)
            reading_ = writing_ = responding_ = false;
        else {
            read_channel();
            write_channel();
        }
        top_->clk = 1;
        top_->eval();
    }

    void read_channel()
    {
        if (!reading_) {
            reading_ = top_->m_axi_arvalid;
            read_id_ = top_->m_axi_arid;
            read_address_ = top_->m_axi_araddr;
            read_left_ = top_->m_axi_arlen;
        } else if (top_->m_axi_rready) {
            reading_ = read_left_ != 0;
            read_address_ += ADAGP_BEAT_BYTES;
            read_left_--;
        }
    }

    void write_channel()
    {
        if (writing_) {
            if (!top_->m_axi_wvalid)
                return;
            uint8_t data[ADAGP_BEAT_BYTES];
            std::memcpy(data, &top_->m_axi_wdata, ADAGP_BEAT_BYTES);
            if (!exists(write_address_))
                write_response_ = kDecodeError;
            else
                for (unsigned i = 0; i < ADAGP_BEAT_BYTES; i++)
                    if (top_->m_axi_wstrb >> i & 1)
                        memory_[write_address_ + i] = data[i];
            write_address_ += ADAGP_BEAT_BYTES;
            writing_ = !top_->m_axi_wlast;
            responding_ = top_->m_axi_wlast;
        } else if (responding_)
            responding_ = !top_->m_axi_bready;
        else {
            writing_ = top_->m_axi_awvalid;
            write_id_ = top_->m_axi_awid;
            write_address_ = top_->m_axi_awaddr;
            write_response_ = kOkay;
        }
    }

    std::unique_ptr<VerilatedContext> context_;
    std::unique_ptr<Vaccelerator> top_;
    std::vector<uint8_t> memory_;
    bool reading_ = false, writing_ = false, responding_ = false;
    uint64_t read_address_ = 0, write_address_ = 0;
    unsigned read_left_ = 0;
    uint8_t read_id_ = 0, write_id_ = 0, write_response_ = kOkay;
};

Simulation &simulation()
{
    static Simulation instance;
    return instance;
}

uint32_t read_register(void *, uint32_t offset)
{
    return simulation().read(offset);
}

void write_register(void *, uint32_t offset, uint32_t value)
{
    simulation().write(offset, value);
}

}  // namespace

extern "C" struct adagp platform_accelerator(void)
{
    return {read_register, write_register, nullptr};
}

extern "C" uint8_t *platform_memory(uint64_t base, uint32_t bytes)
{
    return simulation().memory(base, bytes);
}
