// The accelerator with a memory: start a program, wait for the interrupt, compare what it stored.
//
// Plain Verilog. What it needs lies beside it: the accelerator, adagp_testbench.vh (names, sizes,
// registers), memory.hex (program and data) and expected.hex (the memory as it must be afterwards).
`include "adagp_testbench.vh"

module testbench;
    reg clk;
    reg rst;
    wire irq;
    initial clk = 1'b0;
    always #5 clk = !clk;

    // AXI4-Lite: registers -----------------------------------------------------------------------
    reg [11:0] awaddr, araddr;
    reg [31:0] wdata;
    reg awvalid, wvalid, bready, arvalid, rready;
    wire awready, wready, bvalid, arready, rvalid;
    wire [1:0] bresp, rresp;
    wire [31:0] rdata;

    // AXI4: memory -------------------------------------------------------------------------------
    wire [`ADAGP_ID_WIDTH-1:0] m_awid, m_arid, m_bid, m_rid;
    wire [`ADAGP_ADDRESS_WIDTH-1:0] m_awaddr, m_araddr;
    wire [7:0] m_awlen, m_arlen;
    wire [`ADAGP_DATA_WIDTH-1:0] m_wdata, m_rdata;
    wire [`ADAGP_DATA_WIDTH/8-1:0] m_wstrb;
    wire [1:0] m_bresp, m_rresp;
    wire m_awvalid, m_awready, m_wvalid, m_wready, m_wlast, m_bvalid, m_bready;
    wire m_arvalid, m_arready, m_rvalid, m_rready, m_rlast;

    `ADAGP_TOP accelerator (
        .clk(clk), .rst(rst), .irq(irq),
        .s_axil_awaddr(awaddr), .s_axil_awprot(3'b000),
        .s_axil_awvalid(awvalid), .s_axil_awready(awready),
        .s_axil_wdata(wdata), .s_axil_wstrb(4'b1111),
        .s_axil_wvalid(wvalid), .s_axil_wready(wready),
        .s_axil_bresp(bresp), .s_axil_bvalid(bvalid), .s_axil_bready(bready),
        .s_axil_araddr(araddr), .s_axil_arprot(3'b000),
        .s_axil_arvalid(arvalid), .s_axil_arready(arready),
        .s_axil_rdata(rdata), .s_axil_rresp(rresp),
        .s_axil_rvalid(rvalid), .s_axil_rready(rready),
        // Size and kind of bursts, locks, caches, protection and quality of service are constant
        // and of no interest to a simple memory.
        .m_axi_awid(m_awid), .m_axi_awaddr(m_awaddr), .m_axi_awlen(m_awlen),
        .m_axi_awsize(), .m_axi_awburst(), .m_axi_awlock(), .m_axi_awcache(), .m_axi_awprot(),
        .m_axi_awqos(), .m_axi_awvalid(m_awvalid), .m_axi_awready(m_awready),
        .m_axi_wdata(m_wdata), .m_axi_wstrb(m_wstrb), .m_axi_wlast(m_wlast),
        .m_axi_wvalid(m_wvalid), .m_axi_wready(m_wready),
        .m_axi_bid(m_bid), .m_axi_bresp(m_bresp),
        .m_axi_bvalid(m_bvalid), .m_axi_bready(m_bready),
        .m_axi_arid(m_arid), .m_axi_araddr(m_araddr), .m_axi_arlen(m_arlen),
        .m_axi_arsize(), .m_axi_arburst(), .m_axi_arlock(), .m_axi_arcache(), .m_axi_arprot(),
        .m_axi_arqos(), .m_axi_arvalid(m_arvalid), .m_axi_arready(m_arready),
        .m_axi_rid(m_rid), .m_axi_rdata(m_rdata), .m_axi_rresp(m_rresp), .m_axi_rlast(m_rlast),
        .m_axi_rvalid(m_rvalid), .m_axi_rready(m_rready)
    );

    axi_memory #(
        .DATA_WIDTH(`ADAGP_DATA_WIDTH), .ADDRESS_WIDTH(`ADAGP_ADDRESS_WIDTH), .ID_WIDTH(`ADAGP_ID_WIDTH),
        .WORDS(`RUN_FIRST_WORD + `RUN_WORDS), .SHIFT(`ADAGP_WORD_SHIFT),
        .FIRST_WORD(`RUN_FIRST_WORD), .MEMORY_FILE("memory.hex")
    ) memory (
        .clk(clk), .rst(rst),
        .awid(m_awid), .awaddr(m_awaddr), .awvalid(m_awvalid), .awready(m_awready),
        .wdata(m_wdata), .wstrb(m_wstrb), .wlast(m_wlast), .wvalid(m_wvalid), .wready(m_wready),
        .bid(m_bid), .bresp(m_bresp), .bvalid(m_bvalid), .bready(m_bready),
        .arid(m_arid), .araddr(m_araddr), .arlen(m_arlen),
        .arvalid(m_arvalid), .arready(m_arready),
        .rid(m_rid), .rdata(m_rdata), .rresp(m_rresp), .rlast(m_rlast),
        .rvalid(m_rvalid), .rready(m_rready)
    );

    // Signals change after the rising edge, at which the accelerator samples them.
    task write_register(input [11:0] offset, input [31:0] value);
        begin
            @(posedge clk) #1;
            awaddr = offset; wdata = value; awvalid = 1'b1; wvalid = 1'b1; bready = 1'b1;
            while (awvalid || wvalid) begin : handshake
                reg address_taken, data_taken;
                @(negedge clk);
                address_taken = awready;
                data_taken = wready;
                @(posedge clk) #1;
                if (address_taken) awvalid = 1'b0;
                if (data_taken) wvalid = 1'b0;
            end
            @(negedge clk);
            while (!bvalid) @(negedge clk);
            if (bresp != 2'b00) fail("a register write was refused");
            @(posedge clk) #1 bready = 1'b0;
        end
    endtask

    task read_register(input [11:0] offset, output [31:0] value);
        begin
            @(posedge clk) #1;
            araddr = offset; arvalid = 1'b1; rready = 1'b1;
            @(negedge clk);
            while (!arready) @(negedge clk);
            @(posedge clk) #1 arvalid = 1'b0;
            @(negedge clk);
            while (!rvalid) @(negedge clk);
            value = rdata;
            if (rresp != 2'b00) fail("a register read was refused");
            @(posedge clk) #1 rready = 1'b0;
        end
    endtask

    task fail(input [8*48-1:0] reason);
        begin
            $display("FAIL %0s", reason);
            $stop;  // which is an error where nobody can go on
        end
    endtask

    // Whatever goes wrong, the simulation ends.
    integer cycles;
    initial cycles = 0;
    always @(posedge clk) begin
        cycles = cycles + 1;
        if (cycles > `RUN_TIMEOUT_CYCLES) fail("no interrupt in time");
    end

    reg [`ADAGP_DATA_WIDTH-1:0] expected [0:`RUN_WORDS-1];
    reg [31:0] value, code, unit, address;
    integer i, wrong;

    initial begin
        awvalid = 1'b0; wvalid = 1'b0; bready = 1'b0; arvalid = 1'b0; rready = 1'b0;
        $readmemh("expected.hex", expected);
        rst = 1'b1;
        repeat (4) @(posedge clk);
        #1 rst = 1'b0;

        // Is it the accelerator that the program was compiled for?
        read_register(`ADAGP_ID_OFFSET, value);
        if (value != `ADAGP_ID_CONSTANT) fail("this is no ADA-GP accelerator");
        read_register(`ADAGP_CONFIG_HASH_OFFSET, value);
        if (value != `ADAGP_CONFIG_HASH_CONSTANT) fail("the accelerator has another configuration");

        // The memory window, the program in it, and go.
        write_register(`ADAGP_MEM_BASE_LO_OFFSET, `RUN_MEMORY_BASE);
        write_register(`ADAGP_MEM_BASE_HI_OFFSET, 32'd0);
        write_register(`ADAGP_MEM_SIZE_OFFSET, `RUN_MEMORY_BYTES);
        write_register(`ADAGP_PROGRAM_ADDRESS_OFFSET, `RUN_PROGRAM_OFFSET);
        write_register(`ADAGP_PROGRAM_SIZE_OFFSET, `RUN_PROGRAM_BYTES);
        write_register(`ADAGP_INTERRUPT_ENABLE_OFFSET,
                       `ADAGP_INTERRUPT_ENABLE_DONE_MASK | `ADAGP_INTERRUPT_ENABLE_ERROR_MASK);
        write_register(`ADAGP_CONTROL_OFFSET, `ADAGP_CONTROL_START_MASK);

        // An X on the interrupt line is not a 1: this waits until it really is.
        while (irq !== 1'b1) @(posedge clk);
        read_register(`ADAGP_INTERRUPT_STATUS_OFFSET, value);
        write_register(`ADAGP_INTERRUPT_STATUS_OFFSET, value);  // ends the interrupt
        if ((value & `ADAGP_INTERRUPT_STATUS_ERROR_MASK) != 32'd0) begin
            read_register(`ADAGP_ERROR_CODE_OFFSET, code);
            read_register(`ADAGP_ERROR_UNIT_OFFSET, unit);
            read_register(`ADAGP_ERROR_ADDRESS_LO_OFFSET, address);
            $display("error %0d of unit %0d at 0x%h", code, unit, address);
            fail("the program ended with an error");
        end

        wrong = 0;
        for (i = 0; i < `RUN_WORDS; i = i + 1)
            if (memory.words[`RUN_FIRST_WORD + i] !== expected[i]) begin
                if (wrong == 0)
                    $display("word %0d of the window is %h, expected %h",
                             i, memory.words[`RUN_FIRST_WORD + i], expected[i]);
                wrong = wrong + 1;
            end
        if (wrong != 0) begin
            $display("FAIL %0d of %0d words differ", wrong, `RUN_WORDS);
            $stop;
        end else begin
            read_register(`ADAGP_CYCLES_LO_OFFSET, value);
            $display("PASS all %0d words as expected, %0d cycles", `RUN_WORDS, value);
            $finish;
        end
    end
endmodule
