// AXI4 slave memory for simulation: fast, sustains one read and one write beat per cycle.
//
// - Bytes 0 .. SIZE_BYTES-1 exist; anything beyond answers DECERR. Bursts must be INCR, full width.
// - Reads and writes are each answered in order, QUEUE bursts of each may be outstanding. A beat
//   is written when it is accepted and read when it is put on the R channel.
// - Stalls: in every cycle a channel pauses with probability stall_x / 256. Latency in cycles is
//   added in front of a burst's first R beat and in front of its B response.
// - Errors: bursts' beats inside [error_base, error_base + error_size) answer error_resp and are
//   not written.
// - Back door, synchronous to clk, each started by a change of a toggle input:
//     load  : read words load_first .. load_first+load_count-1 from the binary file LOAD_FILE,
//             most significant byte of each word first
//     dump  : write words dump_first .. dump_last to DUMP_FILE, one hexadecimal word per line
//     access: read (and write, if access_write) the one word access_word; access_result is the
//             old content, access_done becomes equal to access
// - protocol_errors counts what a master must not do: see the checks at the end.
module axi_ram #(
    parameter DATA_WIDTH = 64,
    parameter ADDRESS_WIDTH = 32,
    parameter ID_WIDTH = 2,
    parameter SIZE_BYTES = 1 << 20,
    parameter QUEUE_BITS = 4,
    parameter LOAD_FILE = "memory_in.bin",
    parameter DUMP_FILE = "memory_out.hex"
) (
    input clk,
    input rst,

    input [ID_WIDTH-1:0] awid,
    input [ADDRESS_WIDTH-1:0] awaddr,
    input [7:0] awlen,
    input [2:0] awsize,
    input [1:0] awburst,
    input awvalid,
    output awready,
    input [DATA_WIDTH-1:0] wdata,
    input [DATA_WIDTH/8-1:0] wstrb,
    input wlast,
    input wvalid,
    output wready,
    output reg [ID_WIDTH-1:0] bid,
    output reg [1:0] bresp,
    output reg bvalid,
    input bready,
    input [ID_WIDTH-1:0] arid,
    input [ADDRESS_WIDTH-1:0] araddr,
    input [7:0] arlen,
    input [2:0] arsize,
    input [1:0] arburst,
    input arvalid,
    output arready,
    output reg [ID_WIDTH-1:0] rid,
    output reg [DATA_WIDTH-1:0] rdata,
    output reg [1:0] rresp,
    output reg rlast,
    output reg rvalid,
    input rready,

    input [7:0] stall_aw,
    input [7:0] stall_w,
    input [7:0] stall_b,
    input [7:0] stall_ar,
    input [7:0] stall_r,
    input [15:0] read_latency,
    input [15:0] write_latency,
    input [31:0] seed,
    input [ADDRESS_WIDTH-1:0] error_base,
    input [ADDRESS_WIDTH-1:0] error_size,
    input [1:0] error_resp,

    input load,
    input [31:0] load_first,
    input [31:0] load_count,
    output reg load_done,
    input dump,
    input [31:0] dump_first,
    input [31:0] dump_last,
    output reg dump_done,
    input access,
    input access_write,
    input [31:0] access_word,
    input [DATA_WIDTH-1:0] access_data,
    output reg [DATA_WIDTH-1:0] access_result,
    output reg access_done,

    output reg [31:0] read_beats,
    output reg [31:0] write_beats,
    output reg [31:0] protocol_errors
);
    localparam BYTES = DATA_WIDTH / 8;
    localparam SHIFT = $clog2(BYTES);
    localparam WORDS = SIZE_BYTES / BYTES;
    localparam INDEX = $clog2(WORDS);
    localparam QUEUE = 1 << QUEUE_BITS;
    localparam [1:0] OKAY = 2'b00, DECERR = 2'b11;

    reg [DATA_WIDTH-1:0] memory [0:WORDS-1];

    // xorshift64; a fresh byte for each channel in every cycle.
    reg [63:0] random;
    wire [63:0] random_1 = random ^ (random << 13);
    wire [63:0] random_2 = random_1 ^ (random_1 >> 7);
    always @(posedge clk)
        random <= rst ? {seed, 32'h9e3779b9} : random_2 ^ (random_2 << 17);
    wire pause_aw = random[7:0] < stall_aw;
    wire pause_w = random[15:8] < stall_w;
    wire pause_b = random[23:16] < stall_b;
    wire pause_ar = random[31:24] < stall_ar;
    wire pause_r = random[39:32] < stall_r;

    reg [31:0] now;
    always @(posedge clk) now <= rst ? 0 : now + 1;

    function [1:0] response(input [ADDRESS_WIDTH-1:0] address);
        if (address - error_base < error_size) response = error_resp;
        else if (address >= SIZE_BYTES) response = DECERR;
        else response = OKAY;
    endfunction

    // Reads.
    reg [ID_WIDTH-1:0] ar_id [0:QUEUE-1];
    reg [ADDRESS_WIDTH-1:0] ar_address [0:QUEUE-1];
    reg [7:0] ar_length [0:QUEUE-1];
    reg [31:0] ar_time [0:QUEUE-1];
    reg [QUEUE_BITS:0] ar_in, ar_out;
    reg [7:0] r_beat;
    wire [QUEUE_BITS-1:0] ar_head = ar_out[QUEUE_BITS-1:0];
    wire [ADDRESS_WIDTH-1:0] r_address =
        ar_address[ar_head] + ({{(ADDRESS_WIDTH-8){1'b0}}, r_beat} << SHIFT);
    wire [1:0] r_response = response(r_address);
    wire r_start = ar_in != ar_out && now - ar_time[ar_head] >= {16'b0, read_latency} && !pause_r;
    // A difference of its own width: it wraps as the pointers do.
    wire [QUEUE_BITS:0] ar_used = ar_in - ar_out;
    assign arready = ar_used != QUEUE && !pause_ar;
    always @(posedge clk) begin
        if (arvalid && arready) begin
            ar_id[ar_in[QUEUE_BITS-1:0]] <= arid;
            ar_address[ar_in[QUEUE_BITS-1:0]] <= araddr;
            ar_length[ar_in[QUEUE_BITS-1:0]] <= arlen;
            ar_time[ar_in[QUEUE_BITS-1:0]] <= now;
            ar_in <= ar_in + 1;
        end
        if (!rvalid || rready) begin
            rvalid <= r_start;
            if (r_start) begin
                rid <= ar_id[ar_head];
                rdata <= r_response == OKAY ? memory[r_address[SHIFT +: INDEX]] : 0;
                rresp <= r_response;
                rlast <= r_beat == ar_length[ar_head];
                r_beat <= r_beat + 1;
                if (r_beat == ar_length[ar_head]) begin
                    r_beat <= 0;
                    ar_out <= ar_out + 1;
                end
            end
        end
        if (rvalid && rready) read_beats <= read_beats + 1;
        if (rst) begin
            ar_in <= 0;
            ar_out <= 0;
            r_beat <= 0;
            rvalid <= 0;
            read_beats <= 0;
        end
    end

    // Writes.
    reg [ID_WIDTH-1:0] aw_id [0:QUEUE-1];
    reg [ADDRESS_WIDTH-1:0] aw_address [0:QUEUE-1];
    reg [7:0] aw_length [0:QUEUE-1];
    reg [31:0] b_time [0:QUEUE-1];
    reg [1:0] b_response [0:QUEUE-1];
    reg [QUEUE_BITS:0] aw_in, w_out, b_out; // w_out: whose beats are due, b_out: response due
    reg [7:0] w_beat;
    reg [1:0] w_worst;
    wire [QUEUE_BITS-1:0] w_head = w_out[QUEUE_BITS-1:0];
    wire [QUEUE_BITS-1:0] b_head = b_out[QUEUE_BITS-1:0];
    wire [ADDRESS_WIDTH-1:0] w_address =
        aw_address[w_head] + ({{(ADDRESS_WIDTH-8){1'b0}}, w_beat} << SHIFT);
    wire [1:0] w_response = response(w_address);
    wire [1:0] w_total = w_response > w_worst ? w_response : w_worst;
    wire w_end = w_beat == aw_length[w_head];
    wire b_start = w_out != b_out && now - b_time[b_head] >= {16'b0, write_latency} && !pause_b;
    wire [QUEUE_BITS:0] aw_used = aw_in - b_out;
    assign awready = aw_used != QUEUE && !pause_aw;
    assign wready = aw_in != w_out && !pause_w;
    reg [DATA_WIDTH-1:0] merged;
    integer lane;
    always @(posedge clk) begin
        if (awvalid && awready) begin
            aw_id[aw_in[QUEUE_BITS-1:0]] <= awid;
            aw_address[aw_in[QUEUE_BITS-1:0]] <= awaddr;
            aw_length[aw_in[QUEUE_BITS-1:0]] <= awlen;
            aw_in <= aw_in + 1;
        end
        if (wvalid && wready) begin
            if (w_response == OKAY) begin
                merged = memory[w_address[SHIFT +: INDEX]];
                for (lane = 0; lane < BYTES; lane = lane + 1)
                    if (wstrb[lane]) merged[lane*8 +: 8] = wdata[lane*8 +: 8];
                memory[w_address[SHIFT +: INDEX]] = merged;
            end
            write_beats <= write_beats + 1;
            w_beat <= w_beat + 1;
            w_worst <= w_total;
            if (w_end) begin
                w_beat <= 0;
                w_worst <= OKAY;
                w_out <= w_out + 1;
                b_time[w_head] <= now;
                b_response[w_head] <= w_total;
            end
        end
        if (!bvalid || bready) begin
            bvalid <= b_start;
            if (b_start) begin
                bid <= aw_id[b_head];
                bresp <= b_response[b_head];
                b_out <= b_out + 1;
            end
        end
        if (rst) begin
            aw_in <= 0;
            w_out <= 0;
            b_out <= 0;
            w_beat <= 0;
            w_worst <= OKAY;
            bvalid <= 0;
            write_beats <= 0;
        end

        // Back door.
        if (load != load_done) begin
            load_memory;
            load_done <= load;
        end
        if (dump != dump_done) begin
            $writememh(DUMP_FILE, memory, dump_first, dump_last);
            dump_done <= dump;
        end
        if (access != access_done) begin
            access_result <= memory[access_word[INDEX-1:0]];
            if (access_write) memory[access_word[INDEX-1:0]] = access_data;
            access_done <= access;
        end
    end

    integer file, got;
    task load_memory;
        begin
            file = $fopen(LOAD_FILE, "rb");
            if (file == 0) $fatal(1, "axi_ram: cannot open %s", LOAD_FILE);
            got = $fread(memory, file, load_first, load_count);
            if (got != load_count * BYTES)
                $fatal(1, "axi_ram: %s holds %0d bytes, not %0d", LOAD_FILE, got,
                       load_count * BYTES);
            $fclose(file);
        end
    endtask

    initial begin
        load_done = 0;
        dump_done = 0;
        access_done = 0;
        access_result = 0;
    end

    // Checks of the master.
    function [1:0] illegal(
        input [ADDRESS_WIDTH-1:0] address, input [7:0] length, input [2:0] size, input [1:0] burst
    );
        // Crossing 4 KiB; and anything but INCR and full width.
        illegal = {1'b0, {1'b0, address[11:0]} + ({5'b0, length} << SHIFT) > 13'h0fff}
            + {1'b0, size != SHIFT[2:0] || burst != 2'b01};
    endfunction
    reg aw_waits, w_waits, ar_waits; // valid without ready in the cycle before
    reg [ID_WIDTH+ADDRESS_WIDTH+7:0] aw_before, ar_before;
    reg [DATA_WIDTH+BYTES:0] w_before;
    wire [31:0] new_errors =
        (awvalid && awready ? {30'b0, illegal(awaddr, awlen, awsize, awburst)} : 0)
        + (arvalid && arready ? {30'b0, illegal(araddr, arlen, arsize, arburst)} : 0)
        + {31'b0, wvalid && wready && wlast != w_end}
        + {31'b0, aw_waits && (!awvalid || aw_before != {awid, awaddr, awlen})}
        + {31'b0, ar_waits && (!arvalid || ar_before != {arid, araddr, arlen})}
        + {31'b0, w_waits && (!wvalid || w_before != {wdata, wstrb, wlast})};
    always @(posedge clk) begin
        aw_waits <= awvalid && !awready && !rst;
        ar_waits <= arvalid && !arready && !rst;
        w_waits <= wvalid && !wready && !rst;
        aw_before <= {awid, awaddr, awlen};
        ar_before <= {arid, araddr, arlen};
        w_before <= {wdata, wstrb, wlast};
        protocol_errors <= rst ? 0 : protocol_errors + new_errors;
    end
endmodule
